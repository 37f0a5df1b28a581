//! What is wrong in a configuration is told by name.

use super::*;

fn faults(name: &str, value: &str) -> Vec<String> {
    let mut settings = Settings::for_tests();
    settings.set(name, value);
    Config::from_settings(settings).err().map(|error| error.0).unwrap_or_default()
}

#[test]
fn a_malformed_database_url_is_named_at_start_and_its_password_is_not() {
    for url in [
        "postgres://u:hunter2@h:99999/x",
        "postgres://u:hunter2@:notaport/x",
        "postgres://u:hunter2@h/x?sslmode=maybe",
        "mysql://u:hunter2@h:x/y",
        "mariadb://u:hunter2@h:99999/y",
    ] {
        for name in ["connections.shop", "state.url"] {
            let told = faults(name, url).join("\n");
            assert!(told.starts_with(name), "{name} {url}: {told:?}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
    assert_eq!(
        faults("connections.shop", "postgres://u:p@h:99999/x"),
        ["connections.shop (OUTPORT_CONNECTIONS_SHOP) is not a valid URL: invalid port number"]
    );
}

#[test]
fn a_database_url_that_can_be_read_is_taken() {
    for url in [
        "postgres://u:p%40@h:5432/x?sslmode=verify-full&connections=2",
        "postgresql:///x?host=/run/postgresql",
        "mysql://u:p@[::1]:3306/y",
        "mariadb://h/y",
        "sqlite:///srv/shop.db",
    ] {
        assert_eq!(faults("connections.shop", url), Vec::<String>::new(), "{url}");
    }
}
