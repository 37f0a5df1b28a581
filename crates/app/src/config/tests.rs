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

#[test]
fn what_a_url_says_of_tls_is_not_quoted() {
    for (name, url) in [
        ("connections.shop", "postgres://h/x?sslmode=CANARY7"),
        ("connections.shop", "postgres://h/x?ssl-mode=%22CANARY7%22CANARY7"),
        ("connections.shop", "mysql://h/y?ssl-mode=CANARY7"),
        ("connections.shop", "mariadb://h/y?sslmode=CANARY7"),
        ("state.url", "postgres://h/x?sslmode=CANARY7"),
    ] {
        let told = faults(name, url).join("\n");
        let rule = "unknown value … for `ssl_mode`";
        assert!(told.starts_with(name) && told.ends_with(rule), "{url}: {told:?}");
        assert!(!told.to_uppercase().contains("CANARY"), "{told}");
    }
}

#[test]
fn a_url_that_is_mistyped_is_not_shown_and_one_that_holds_no_password_is() {
    const WEB: &str = "must be an http or https URL";
    let told = |settings: &[(&str, &str)]| {
        let mut all = Settings::for_tests();
        for (name, value) in settings {
            all.set(name, value);
        }
        Config::from_settings(all).err().map(|error| error.to_string()).unwrap_or_default()
    };
    for url in [
        "https//u:CANARY7@idp/jwks",
        "u:CANARY7@idp/jwks",
        "https:/ u:CANARY7@idp",
        "//u:CANARY7@idp",
        "https;//idp/CANARY7",
        "https://idp:CANARY7/jwks",
        "ftp://u:CANARY7@idp",
        "ftp://idp?key=CANARY7",
    ] {
        for (name, rule) in [
            ("publicUrl", "must be an http or https URL without credentials, query or fragment"),
            ("jwt.jwksUrl", WEB),
            ("s3.endpoint", WEB),
            ("s3.publicEndpoint", WEB),
            ("mail.url", "cannot be used: "),
            ("broker.url", "cannot be used: "),
            ("state.url", "must start with sqlite:// or postgres://"),
            ("connections.shop", "must start with sqlite://"),
        ] {
            // An address may hold a blank.
            if url.contains(' ') && rule == WEB {
                continue;
            }
            let contract = [BROKER[1], BROKER[2], ("s3.bucket", "files")];
            let broker = if name == "broker.url" { &contract[..2] } else { &contract[2..] };
            let said = told(&[broker, &[(name, url)]].concat());
            let variable = variables::environment_name(name);
            assert!(said.contains(&format!("{name} ({variable}) {rule}")), "{url}: {said}");
            assert!(!said.contains("CANARY"), "{said}");
        }
        // Where it means nothing it is not shown either.
        let said = told(&[("s3.endpoint", url)]);
        assert!(said.contains("means nothing without s3.bucket"), "{said}");
        assert!(!said.contains("CANARY"), "{said}");
    }
    for url in [
        "https:u CANARY7@idp",
        "https://:CANARY7@idp",
        "https://u@idp?CANARY7",
        "https://idp?CANARY7",
        "https://idp#CANARY7",
        "https://idp/#",
    ] {
        let said = told(&[("publicUrl", url)]);
        assert!(said.contains("publicUrl (OUTPORT_PUBLIC_URL) must be an http"), "{said}");
        assert!(!said.contains("CANARY"), "{said}");
    }
    for (name, url) in [("publicUrl", "ftp://reports.example"), ("s3.endpoint", "minio:9000")] {
        let said = told(&[("s3.bucket", "files"), (name, url)]);
        assert!(said.contains(&format!("is '{url}' and {WEB}")), "{said}");
    }
}

#[test]
fn a_url_in_the_place_of_a_name_is_refused_and_not_shown() {
    const URL: &str = "postgres://u.CANARY7:CANARY8@h.example/x";
    const RULE: &str = "must not have ':', '/' or '@'; its URL is the value";
    const UNKNOWN: &str = "is not a variable that Outport knows";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("outport.toml");
    let told = |text: String| {
        std::fs::write(&file, text).expect("a file");
        let mut settings = Settings::for_tests();
        match settings.read_file(&file) {
            Ok(()) => Config::from_settings(settings).err().expect("a fault").to_string(),
            Err(error) => error.to_string(),
        }
    };
    for (text, start, rule) in [
        (format!("[connections]\n\"{URL}\" = \"shop\""), "connections.…: ", RULE),
        (format!("[connections]\n\"{URL}\" = \"sqlite:///x\""), "connections.…: ", RULE),
        (format!("[connections]\n\"{URL}\" = \"\""), "connections.…: ", RULE),
        (format!("[connections]\n\"{URL}\" = [1]"), "connections.…: ", "must be a text"),
        (format!("[connections.\"{URL}\"]\na = \"b\""), "connections.…: ", RULE),
        (format!("[connections]\n\"{URL}\" = 1\n\"{URL}\" = 2"), "outport.toml: ", ""),
        (format!("[connections]\n\"{URL}\" \"shop\""), "outport.toml: ", ""),
        (format!("[state]\n\"{URL}\" = \"url\""), "state.…: ", UNKNOWN),
        (format!("\"{URL}\" = \"state.url\""), "  …: ", UNKNOWN),
        (format!("[u]\n\"{URL}\" = \"shop\""), "  …: ", UNKNOWN),
    ] {
        let said = told(text);
        assert!(said.contains(start) && said.contains(rule), "{said}");
        assert!(!said.contains("CANARY"), "{said}");
    }
    let mut settings = Settings::for_tests();
    settings.read_environment([(format!("OUTPORT_{URL}"), "x".to_owned())].into_iter());
    let said = Config::from_settings(settings).err().expect("a fault").to_string();
    assert!(said.contains(UNKNOWN) && !said.contains("CANARY"), "{said}");
}

const BROKER: [(&str, &str); 3] = [
    ("broker.url", "amqp://user:hunter2@broker:5672"),
    ("streaming.enabled", "true"),
    ("streaming.cloudeventsSource", "//outport/worker"),
];

fn with_broker(name: &str, value: &str) -> Result<Config, ConfigError> {
    let mut settings = Settings::for_tests();
    for (name, value) in BROKER {
        settings.set(name, value);
    }
    settings.set(name, value);
    Config::from_settings(settings)
}

#[test]
fn a_broker_is_configured_by_the_contracts_own_names() {
    let mut settings = Settings::for_tests();
    let variables = [
        ("OUTPORT_BROKER_URL", "amqp://broker"),
        ("STREAMING_ENABLED", "true"),
        ("RABBITMQ_JOB_EVENTS_EXCHANGE", "other.events"),
        ("STREAMING_CLOUDEVENTS_SOURCE", "//other"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    settings.read_environment(variables.into_iter());
    let config = Config::from_settings(settings).unwrap_or_else(|error| panic!("{error}"));
    let broker = config.broker.expect("a broker");
    assert_eq!((broker.exchange.as_str(), broker.source.as_str()), ("other.events", "//other"));
}

#[test]
#[cfg(unix)]
fn a_variable_that_is_no_text_is_a_fault_of_its_name_and_of_nobody_elses() {
    use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

    let mut settings = Settings::for_tests();
    let no_text = || OsString::from_vec(b"SECRET\xff".to_vec());
    let names = ["APP_ENC_KEY", "OUTPORT_CONNECTIONS_SHOP", "UNRELATED"].map(OsString::from);
    let variables = names.into_iter().chain([no_text()]).map(|name| (name, no_text()));
    settings.read_environment(variables);
    let Err(ConfigError(faults)) = Config::from_settings(settings) else { panic!("two are wrong") };
    assert_eq!(
        faults,
        ["APP_ENC_KEY: must be text in UTF-8", "OUTPORT_CONNECTIONS_SHOP: must be text in UTF-8"]
    );
}

#[test]
fn a_file_that_is_no_toml_is_told_with_the_line_and_without_its_text() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    for text in [
        "listen = \"a\"\n\n[broker]\nurl = \"amqp://u:SECRET@h\n",
        "a = 1\nb = 2\n\na = \"SECRET\"",
    ] {
        std::fs::write(file.path(), text).expect("a file");
        let error = Settings::default().read_file(file.path()).expect_err("no TOML").to_string();
        assert!(error.contains(": line 4: ") && !error.contains("SECRET"), "{error}");
    }
}

#[test]
fn rules_between_bounds_name_their_variables() {
    let mut settings = Settings::for_tests();
    settings.set("limits.heartbeatMilliseconds", "20000");
    let Err(ConfigError(faults)) = Config::from_settings(settings) else { panic!("one is wrong") };
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    for variable in ["OUTPORT_LIMITS_HEARTBEAT_MILLISECONDS", "OUTPORT_LIMITS_LEASE_SECONDS"] {
        assert!(fault.contains(&format!(" ({variable})")), "{fault}");
    }
}

#[test]
fn what_commands_that_ask_a_server_read_is_no_fault() {
    let mut settings = Settings::for_tests();
    let variables = ["OUTPORT_URL", "OUTPORT_TOKEN", "OUTPORT_TOKENS"];
    settings.read_environment(variables.map(|name| (name.to_owned(), "x".to_owned())).into_iter());
    let Err(ConfigError(faults)) = Config::from_settings(settings) else { panic!("one is wrong") };
    assert_eq!(faults, ["OUTPORT_TOKENS: is not a variable that Outport knows"]);
}

#[test]
fn a_broker_without_the_rest_of_its_contract_is_refused_by_variable() {
    let config = with_broker("broker.exchange", "fetcher.job.events");
    assert!(config.is_ok_and(|config| config.check_worker().is_ok()));
    for (name, value, variable) in [
        ("streaming.enabled", "false", "STREAMING_ENABLED"),
        ("streaming.enabled", "", "STREAMING_ENABLED"),
        ("broker.exchange", "", "RABBITMQ_JOB_EVENTS_EXCHANGE"),
        ("broker.exchange", &"x".repeat(256), "RABBITMQ_JOB_EVENTS_EXCHANGE"),
        ("broker.exchange", "two\nlines", "RABBITMQ_JOB_EVENTS_EXCHANGE"),
        ("streaming.cloudeventsSource", "", "STREAMING_CLOUDEVENTS_SOURCE"),
        ("streaming.cloudeventsSource", "two\nlines", "STREAMING_CLOUDEVENTS_SOURCE"),
        ("streaming.cloudeventsSource", "two words", "STREAMING_CLOUDEVENTS_SOURCE"),
        ("broker.typePrefix", "two\nlines", "OUTPORT_BROKER_TYPE_PREFIX"),
        ("broker.typePrefix", "", "OUTPORT_BROKER_TYPE_PREFIX"),
        ("broker.topology", "make", "OUTPORT_BROKER_TOPOLOGY"),
        ("broker.unroutable", "drop", "OUTPORT_BROKER_UNROUTABLE"),
        ("broker.confirmSeconds", "60", "OUTPORT_BROKER_CONFIRM_SECONDS"),
        ("tenancy", "many\ntenants", "OUTPORT_TENANCY"),
        ("broker.url", "http://user:hunter2@broker", "OUTPORT_BROKER_URL"),
    ] {
        let Err(ConfigError(faults)) = with_broker(name, value) else {
            panic!("{name} = {value:?} is taken")
        };
        assert!(faults.len() == 1 && faults[0].contains(variable), "{name}: {faults:?}");
        assert!(!faults[0].contains("hunter2"), "{faults:?}");
    }
    assert_eq!(
        faults("streaming.enabled", "true"),
        [
            "streaming.enabled (STREAMING_ENABLED) is 'true' and means nothing without broker.url (OUTPORT_BROKER_URL)"
        ]
    );
}

#[test]
fn authorities_of_the_broker_are_read_at_once_and_for_tls_alone() {
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    let folder = tempfile::tempdir().expect("a folder");
    let file = |text: &str| {
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let read = |url: &str, path: &str| {
        let mut settings = Settings::for_tests();
        for (name, value) in BROKER {
            settings.set(name, value);
        }
        settings.set("broker.url", url);
        settings.set("broker.caFile", path);
        Config::from_settings(settings)
    };
    let config = read("amqps://broker", &file(CERTIFICATE)).map(|config| config.broker);
    let config = config.unwrap_or_else(|error| panic!("{error}")).expect("a broker");
    assert_eq!(config.authorities.as_deref(), Some(CERTIFICATE));
    for (url, path, rule) in [
        (
            "amqp://broker",
            file(CERTIFICATE),
            "means nothing unless broker.url begins with amqps://",
        ),
        ("amqps://broker", "/nowhere/ca.pem".to_owned(), "cannot be read"),
        ("amqps://broker", file("no PEM"), "must hold certificates in PEM"),
    ] {
        let ConfigError(faults) = read(url, &path).err().expect("a refusal");
        assert!(faults.len() == 1 && faults[0].contains(rule), "{faults:?}");
        assert!(faults[0].contains("OUTPORT_BROKER_CA_FILE"), "{faults:?}");
    }
}

#[test]
fn the_application_of_jobs_is_a_name_of_a_channel() {
    let read = |name: &str| {
        let mut settings = Settings::for_tests();
        settings.set("stream.application", name);
        Config::from_settings(settings).map(|config| config.stream_application)
    };
    assert_eq!(read("Shop_1-x"), Ok("Shop_1-x".to_owned()));
    for name in ["a.b", "a b"] {
        let ConfigError(faults) = read(name).expect_err("a refusal");
        assert!(
            faults.len() == 1
                && faults[0].contains("stream.application (OUTPORT_STREAM_APPLICATION)")
                && faults[0].contains("must be 1 to 100 letters"),
            "{faults:?}"
        );
    }
}

#[test]
fn only_an_embedded_worker_does_without_a_broker() {
    let worker = |name, value| {
        let mut settings = Settings::for_tests();
        settings.set(name, value);
        let config = Config::from_settings(settings).unwrap_or_else(|error| panic!("{error}"));
        config.check_worker()
    };
    assert_eq!(worker("state.url", "sqlite:///srv/outport.db"), Ok(()));
    let ConfigError(faults) = worker("state.url", "postgres://h/x").expect_err("a refusal");
    assert!(faults[0].starts_with("broker.url (OUTPORT_BROKER_URL) must be set"), "{faults:?}");
}
