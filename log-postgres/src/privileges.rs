//! Privileges that the broker does not need, and settings that weaken its guarantees.

use crate::session::Session;
use log::LogError;

const RIGHTS: &str = "SELECT current_user::text, rolsuper, \
    pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'events'::regclass), 'USAGE'), \
    has_table_privilege('events', 'UPDATE') OR has_table_privilege('entries', 'UPDATE'), \
    has_table_privilege('events', 'DELETE') OR has_table_privilege('entries', 'DELETE'), \
    has_table_privilege('events', 'TRUNCATE') OR has_table_privilege('entries', 'TRUNCATE'), \
    current_setting('fsync'), current_setting('full_page_writes') \
    FROM pg_roles WHERE rolname = current_user";

/// One sentence for each problem that an operator should know of.
pub(crate) async fn warnings(session: &Session) -> Result<Vec<String>, LogError> {
    let Some(row) = session.row(RIGHTS, &[]).await? else { return Ok(Vec::new()) };
    let role: String = row.get(0);
    let mut warnings = Vec::new();
    match (row.get::<_, bool>(1), row.get::<_, bool>(2)) {
        (true, _) => warnings.push(format!("The role {role} is a superuser; a broker does not need that.")),
        (false, true) => warnings.push(format!("The role {role} owns the log's tables; only migrations need that.")),
        (false, false) => {
            let more = [(3, "UPDATE"), (4, "DELETE"), (5, "TRUNCATE")].into_iter().filter(|(at, _)| row.get(*at));
            let more: Vec<_> = more.map(|(_, right)| right).collect();
            if !more.is_empty() {
                let more = more.join(", ");
                warnings.push(format!("The role {role} has {more} on the log's tables; INSERT and SELECT are enough."));
            }
        }
    }
    if !warnings.is_empty() {
        warnings.push("Run the broker as event_broker_application; roles.sql creates it.".to_owned());
    }
    for (at, setting) in [(6, "fsync"), (7, "full_page_writes")] {
        if row.get::<_, String>(at) == "off" {
            warnings.push(format!("The server runs with {setting} off: a crash can lose what was acknowledged."));
        }
    }
    Ok(warnings)
}
