//! Encrypted connections, to a server with a certificate from the test.

use crate::support::{batch, open};
use contract::Position;
use log::Log;
use log_postgres::testing::TestServer;
use log_postgres::{PostgresLog, PostgresOptions};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_proves_its_name_where_it_is_asked_to() {
    let server = TestServer::start();
    let plain = server.create_database();
    // Created as the server's user, who must own them: a root certificate, and a server certificate signed by it.
    let make = "cd $D && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=root -keyout root.key -out root.crt \
        && openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr \
        && printf subjectAltName=DNS:localhost > names \
        && openssl x509 -req -in server.csr -CA root.crt -CAkey root.key -CAcreateserial -days 2 -extfile names \
        -out server.crt";
    let data = server.folder().join("data");
    let make = make.replace("$D", &data.display().to_string());
    server.sql("postgres", &format!("COPY (SELECT 1) TO PROGRAM '{make} 2>&1'"));
    server.sql("postgres", "ALTER SYSTEM SET ssl = on");
    server.sql("postgres", "SELECT pg_reload_conf()");
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
        WHERE application_name = 'event-broker'";
    let named = plain.replace("127.0.0.1", "localhost");
    let root = std::env::temp_dir().join(format!("event-broker-root-{}.crt", std::process::id()));
    std::fs::copy(data.join("root.crt"), &root).unwrap();
    let verified = format!("{named}?sslmode=verify-full&sslrootcert={}", root.display());
    for url in [&plain, &format!("{plain}?sslmode=require"), &verified] {
        let log = open(url).await;
        let tail = *log.tail().borrow();
        log.append(tail, batch(tail, 1, 1)).await.unwrap();
        assert_eq!(server.sql(&plain, encrypted), "t", "{url}");
        drop(log);
    }
    let log = open(&format!("{plain}?sslmode=disable")).await;
    log.append(Position(3), batch(Position(3), 1, 1)).await.unwrap();
    // A host name that is not in the certificate, and an unknown root.
    for wrong in [verified.replace("localhost", "127.0.0.1"), format!("{named}?sslmode=verify-full")] {
        let refused = PostgresLog::open(&wrong, PostgresOptions::default()).await.err().unwrap().to_string();
        assert!(refused.contains("certificate"), "{refused}");
    }
    std::fs::remove_file(root).unwrap();
}
