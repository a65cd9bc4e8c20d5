//! What searching events for secrets costs, per byte of `data`: the same events in a topic that is inspected and in one that is not.

use super::{Run, runtime};
use crate::events::{Aggregates, Maker, topic};
use crate::figures::{fine, median};
use crate::report::{Report, Table};
use crate::store::Store;
use crate::{Outcome, usage};
use contract::api::*;
use contract::{SecretPolicy, TopicChange};
use serde_json::json;
use serde_json::value::RawValue;

const EVENTS: u64 = 20_000;

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let (rounds, events) = (run.rounds(), run.count(EVENTS));
    let runtime = runtime()?;
    let title = "CPU of publishing in memory, one caller, events without secrets";
    let mut table = Table::new(title, ["items in data", "data bytes", "off us/event", "flag us/event", "ns/byte"]);
    let mut number = 0;
    for items in [1, 16, 64] {
        let data = order(items);
        let mut cpu = [Vec::new(), Vec::new()];
        let store = runtime.block_on(Store::memory())?;
        for _ in 0..rounds {
            for (cpu, policy) in cpu.iter_mut().zip([SecretPolicy::Off, SecretPolicy::Flag]) {
                cpu.push(runtime.block_on(publish(&store, policy, &data, (&mut number, events)))?);
            }
        }
        runtime.block_on(store.close());
        let [off, flag] = cpu.map(median);
        let per_byte = (flag - off) * 1e9 / data.len() as f64;
        table.row([items.to_string(), data.len().to_string(), fine(off * 1e6), fine(flag * 1e6), fine(per_byte)]);
    }
    report.table(&table);
    Ok(())
}

/// Publishes events with this `data`; returns the seconds of CPU per event.
async fn publish(store: &Store, secrets: SecretPolicy, data: &str, (number, events): (&mut u64, u64)) -> Outcome<f64> {
    store
        .broker
        .change_topic(&topic()?, TopicChange { secrets: Some(Some(secrets)), ..TopicChange::default() })
        .await?;
    let maker = Maker::new(Aggregates::Distinct)?;
    let before = usage::cpu_time();
    for _ in 0..events {
        let mut event = maker.event(*number)?;
        event.data = RawValue::from_string(data.to_owned())?;
        store.broker.publish(event, None).await?;
        *number += 1;
    }
    Ok(usage::cpu_time().saturating_sub(before).as_secs_f64() / events as f64)
}

/// `data` as shops send it: ids, names, times, URLs and text.
fn order(items: usize) -> String {
    let item = |number: usize| {
        json!({
            "id": format!("550e8400-e29b-41d4-a716-4466554{number:05}"), "amount": number, "currency": "EUR",
            "customer": {"name": "Maria Miller", "url": "https://shop.example/customers/17"},
            "placedAt": "2025-12-03T12:00:00.000Z", "note": "please leave the parcel with the neighbour",
        })
    };
    json!({"by": 17, "amount": 19.95, "currency": "EUR", "items": (0..items).map(item).collect::<Vec<_>>()}).to_string()
}
