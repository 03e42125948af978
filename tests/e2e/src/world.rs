//! One workerd that serves the real Wasm from its own storage folder, beside a simulator.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Client;
use crate::config::{self, KEY_PEPPER, OPERATOR_KEY, PROVIDER_KEY, Tenant};
use crate::gate::Permit;
use crate::hand::HandProvider;
use crate::recordings;
use crate::simulator::Simulator;
use crate::wait_for;

/// Bytes of the server's output that a failed test shows.
const SHOWN_OUTPUT_BYTES: usize = 8 * 1024;

/// What a world serves.
#[derive(Clone, Debug)]
pub struct Options {
    name: String,
    tenants: Vec<Tenant>,
    limits: Value,
    test_hooks: bool,
    alone: bool,
    misconfigured: bool,
    operator: bool,
    local: bool,
    cron: bool,
    stored: Option<PathBuf>,
    by_hand: Option<String>,
}

impl Options {
    /// A world for the test called `name`. Heartbeats come twice a second, everything else is as shipped.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let limits = json!({ "heartbeat_ms": 500 });
        Self {
            name: name.to_owned(),
            tenants: Vec::new(),
            limits,
            test_hooks: false,
            alone: false,
            misconfigured: false,
            operator: true,
            local: false,
            cron: false,
            stored: None,
            by_hand: None,
        }
    }

    /// A provider by hand serves [`config::by_hand`] of each dialect.
    #[must_use]
    pub fn by_hand(mut self, provider: &HandProvider) -> Self {
        self.by_hand = Some(provider.origin().to_owned());
        self
    }

    /// The cron can be rung: [`World::ring_cron`].
    #[must_use]
    pub fn with_cron(mut self) -> Self {
        self.cron = true;
        self
    }

    /// Nobody has set an operator's key, and the server does not say that it is local.
    #[must_use]
    pub fn without_operator(mut self) -> Self {
        self.operator = false;
        self.misconfigured()
    }

    /// The settings have a fault: the server is ready when it says so.
    #[must_use]
    pub fn misconfigured(mut self) -> Self {
        self.misconfigured = true;
        self
    }

    /// Serves a copy of what another version has stored: a folder of `tests/e2e/fixtures`.
    #[must_use]
    pub fn stored_by(mut self, fixture: &str) -> Self {
        self.stored = Some(fixtures().join(fixture));
        self
    }

    /// Adds a tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: &Tenant) -> Self {
        self.tenants.push(tenant.clone());
        self
    }

    /// Sets one of the operator's limits.
    #[must_use]
    pub fn limit(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.limits[name] = value.into();
        self
    }

    /// The server says that it is on a developer's machine.
    #[must_use]
    pub fn local(mut self) -> Self {
        self.local = true;
        self
    }

    /// Serves the build with test hooks.
    #[must_use]
    pub fn with_test_hooks(mut self) -> Self {
        self.test_hooks = true;
        self
    }

    /// Runs while no other world of this process runs: for tests that measure time.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }
}

/// A running world. Dropping it kills the server and removes its storage.
#[derive(Debug)]
pub struct World {
    /// The provider behind the edge.
    pub simulator: Simulator,
    name: String,
    port: u16,
    folder: TempDir,
    server: Mutex<Option<Child>>,
    misconfigured: bool,
    cron_port: Option<u16>,
    _permit: Permit,
}

impl World {
    /// Starts simulator and server and waits until the server answers.
    ///
    /// # Panics
    /// When a part that is needed is missing, with the command that makes it.
    #[must_use]
    pub fn start(options: &Options) -> Self {
        let permit = if options.alone { Permit::acquire_alone() } else { Permit::acquire() };
        let build = build_folder(options.test_hooks);
        let simulator = Simulator::start(recordings::find().as_deref());
        let folder = tempfile::Builder::new().prefix("holdfast-e2e-").tempdir().expect("a folder");
        let port = free_port();
        let cron_port = options.cron.then(free_port);
        write_config(options, &simulator, folder.path(), (port, cron_port), &build);
        let world = Self {
            simulator,
            name: options.name.clone(),
            port,
            folder,
            server: Mutex::new(None),
            misconfigured: options.misconfigured,
            cron_port,
            _permit: permit,
        };
        world.serve();
        if !options.misconfigured {
            options.tenants.iter().for_each(|tenant| world.create(tenant));
        }
        world
    }

    /// Creates a tenant, as its operator.
    pub fn create(&self, tenant: &Tenant) {
        let creation = self.operator().authorized("POST", "/admin/tenants").json(&tenant.creation());
        let _created = self.operator().call(&creation).expect(201);
    }

    /// A client that shows the operator's key.
    #[must_use]
    pub fn operator(&self) -> Client {
        Client::new(self.port, OPERATOR_KEY)
    }

    /// A client that shows the tenant's key.
    #[must_use]
    pub fn client(&self, tenant: &Tenant) -> Client {
        Client::new(self.port, tenant.key())
    }

    /// A client that shows any key.
    #[must_use]
    pub fn client_with_key(&self, key: &str) -> Client {
        Client::new(self.port, key)
    }

    /// The base URL that an SDK is given.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// `SIGKILL`: the server gets no chance to say or store anything more. Threads of a test may be talking to it.
    ///
    /// # Panics
    /// When it is not running.
    pub fn kill(&self) {
        let mut server = self.lock().take().expect("a running server");
        server.kill().expect("the server can be killed");
        server.wait().expect("the server is gone");
    }

    /// What the server says of itself from its next start on.
    ///
    /// # Panics
    /// When its configuration cannot be rewritten.
    pub fn set_local(&self, local: bool) {
        let path = config_path(self.folder.path());
        let config = fs::read_to_string(&path).expect("its configuration");
        let binding = |value: bool| format!("(name = \"LOCAL\", text = \"{value}\")");
        assert!(config.contains(&binding(!local)), "it said the opposite before");
        fs::write(&path, config.replace(&binding(!local), &binding(local))).expect("its configuration");
    }

    /// Starts the server again on the same storage and port.
    pub fn restart(&self) {
        self.serve();
    }

    /// Edits the rows of a tenant on the disk, behind its back. The server must be stopped.
    ///
    /// # Panics
    /// When it runs, when no database is the tenant's, or when a statement changes no row.
    pub fn edit_tenant(&self, tenant: &Tenant, statements: &[&str]) {
        self.edit(&self.database_of(tenant.id()), statements);
    }

    /// Edits the rows of a generation on the disk, behind its back. The server must be stopped.
    ///
    /// # Panics
    /// When it runs, when no database is the generation's, or when a statement changes no row.
    pub fn edit_generation(&self, id: &str, statements: &[&str]) {
        self.edit(&self.database_of_generation(id), statements);
    }

    /// Edits the rows of the directory on the disk, behind its back. The server must be stopped.
    ///
    /// # Panics
    /// When it runs, when there is no directory, or when a statement changes no row.
    pub fn edit_directory(&self, statements: &[&str]) {
        self.edit(&self.database_of_directory(), statements);
    }

    fn edit(&self, database: &rusqlite::Connection, statements: &[&str]) {
        assert!(self.lock().is_none(), "the server is stopped");
        for statement in statements {
            let changed = database.execute(statement, ()).unwrap_or_else(|error| panic!("{statement}: {error}"));
            assert!(changed > 0, "{statement} changes nothing");
        }
    }

    /// A number that a query finds in the rows of the directory on the disk. The server must be stopped.
    ///
    /// # Panics
    /// When it runs, or when the query finds none.
    #[must_use]
    pub fn count_in_directory(&self, query: &str) -> i64 {
        assert!(self.lock().is_none(), "the server is stopped");
        let found = self.database_of_directory().query_row(query, (), |row| row.get(0));
        found.unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// A number that a query finds in the rows of a generation on the disk. The server must be stopped.
    ///
    /// # Panics
    /// When it runs, or when the query finds none.
    #[must_use]
    pub fn count_in_generation(&self, id: &str, query: &str) -> i64 {
        assert!(self.lock().is_none(), "the server is stopped");
        let found = self.database_of_generation(id).query_row(query, (), |row| row.get(0));
        found.unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// A number that a query finds in the rows of a tenant on the disk. The server must be stopped.
    ///
    /// # Panics
    /// When it runs, or when the query finds none.
    #[must_use]
    pub fn count_in_tenant(&self, tenant: &Tenant, query: &str) -> i64 {
        assert!(self.lock().is_none(), "the server is stopped");
        let found = self.database_of(tenant.id()).query_row(query, (), |row| row.get(0));
        found.unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// When the alarm of a generation rings next, in Unix milliseconds, if it has one. The server may run.
    ///
    /// # Panics
    /// When the platform keeps alarms in another way.
    #[must_use]
    pub fn alarm_of_generation(&self, id: &str) -> Option<u64> {
        let file = self.folder.path().join("storage/holdfast-ReservationObject/metadata.sqlite");
        let alarms = rusqlite::Connection::open(file).expect("the platform's alarms");
        let query = "SELECT scheduled_time / 1000000 FROM _cf_ALARM WHERE actor_name LIKE '%:' || ?";
        match alarms.query_row(query, [id], |row| row.get::<_, i64>(0)) {
            Err(rusqlite::Error::QueryReturnedNoRows) => None,
            at => Some(u64::try_from(at.expect("a time")).expect("a time")),
        }
    }

    /// Forgets every alarm of every object, as if the platform had lost them. The server must be stopped.
    ///
    /// # Panics
    /// When it runs, or when there is no alarm.
    pub fn forget_alarms(&self) {
        assert!(self.lock().is_none(), "the server is stopped");
        let files = sqlite_files(&self.folder.path().join("storage"));
        let forgotten: usize = files.iter().map(|file| alarms_deleted(file)).sum();
        assert!(forgotten > 0, "no alarm in {files:?}");
    }

    /// The rows of a tenant as they are now. To be put back by [`World::restore_tenant`].
    ///
    /// # Panics
    /// When they cannot be read.
    #[must_use]
    pub fn snapshot_tenant(&self, tenant: &Tenant) -> Vec<(PathBuf, Vec<u8>)> {
        let file = PathBuf::from(self.database_of(tenant.id()).path().expect("a file"));
        let parts = ["", "-wal", "-shm"].map(|ending| {
            let mut name = file.clone().into_os_string();
            name.push(ending);
            PathBuf::from(name)
        });
        parts.into_iter().map(|part| (part.clone(), fs::read(&part).unwrap_or_default())).collect()
    }

    /// Puts the rows of a tenant back as they were. The server must be stopped.
    ///
    /// # Panics
    /// When it runs, or when they cannot be written.
    pub fn restore_tenant(&self, snapshot: &[(PathBuf, Vec<u8>)]) {
        assert!(self.lock().is_none(), "the server is stopped");
        for (file, bytes) in snapshot {
            if bytes.is_empty() {
                // Whether it was there does not matter.
                let _ = fs::remove_file(file);
            } else {
                fs::write(file, bytes).expect("the rows as they were");
            }
        }
    }

    /// The evidence of a generation, as it is stored: kind and record, the oldest first. The server must be stopped.
    ///
    /// # Panics
    /// When it runs, or when there is none.
    #[must_use]
    pub fn evidence(&self, id: &str) -> Vec<(String, serde_json::Value)> {
        assert!(self.lock().is_none(), "the server is stopped");
        let database = self.database_of_generation(id);
        let rows = database.prepare("SELECT kind, json FROM evidence ORDER BY seq").and_then(|mut statement| {
            let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
            rows.collect::<Result<Vec<_>, _>>()
        });
        let rows = rows.unwrap_or_else(|error| panic!("evidence of {id}: {error}"));
        rows.into_iter().map(|(kind, json)| (kind, serde_json::from_str(&json).expect("a record is JSON"))).collect()
    }

    fn database_of_generation(&self, id: &str) -> rusqlite::Connection {
        let is_of_generation = |database: &rusqlite::Connection| {
            let query = "SELECT json_extract(json, '$.identity.generation') FROM state";
            database.query_row(query, (), |row| row.get::<_, String>(0)).is_ok_and(|found| found == id)
        };
        let files = sqlite_files(&self.folder.path().join("storage"));
        let mut databases = files.iter().filter_map(|file| rusqlite::Connection::open(file).ok());
        databases.find(is_of_generation).unwrap_or_else(|| panic!("no database of {id} in {files:?}"))
    }

    fn database_of_directory(&self) -> rusqlite::Connection {
        let files = sqlite_files(&self.folder.path().join("storage").join("holdfast-DirectoryObject"));
        let has_tenants = |database: &rusqlite::Connection| database.prepare("SELECT id FROM tenant").is_ok();
        let mut databases = files.iter().filter_map(|file| rusqlite::Connection::open(file).ok());
        databases.find(has_tenants).unwrap_or_else(|| panic!("no directory in {files:?}"))
    }

    fn database_of(&self, tenant: &str) -> rusqlite::Connection {
        let is_of_tenant = |database: &rusqlite::Connection| {
            let query = "SELECT json_extract(json, '$.id') FROM account";
            database.query_row(query, (), |row| row.get::<_, String>(0)).is_ok_and(|id| id == tenant)
        };
        let files = sqlite_files(&self.folder.path().join("storage"));
        let mut databases = files.iter().filter_map(|file| rusqlite::Connection::open(file).ok());
        databases.find(is_of_tenant).unwrap_or_else(|| panic!("no database of tenant {tenant} in {files:?}"))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rings the cron, and returns how the run ended.
    ///
    /// # Panics
    /// Without [`Options::with_cron`].
    #[must_use]
    pub fn ring_cron(&self) -> String {
        let port = self.cron_port.expect("a world with a cron");
        Client::new(port, "").get("/").expect(200).text().trim().to_owned()
    }

    fn serve(&self) {
        let log = File::options().create(true).append(true).open(self.log_path()).expect("a log file");
        let server = Command::new(workerd())
            .arg("serve")
            .args(self.cron_port.map(|_| "--experimental"))
            .arg(config_path(self.folder.path()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn();
        let mut server = server.unwrap_or_else(|error| panic!("workerd does not start: {error}"));
        wait_for("a server that answers", || {
            if let Some(status) = server.try_wait().expect("the server's state") {
                panic!("{}: workerd ended with {status}:\n{}", self.name, self.output());
            }
            answers(self.port, if self.misconfigured { 503 } else { 200 })
        });
        *self.lock() = Some(server);
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("workerd.log")
    }

    /// How often the server has written `words` to its standard streams, over all its starts.
    #[must_use]
    pub fn output_count(&self, words: &str) -> usize {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).matches(words).count()
    }

    /// The end of what the server wrote to its standard streams.
    #[must_use]
    pub fn output(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        let start = bytes.len().saturating_sub(SHOWN_OUTPUT_BYTES);
        String::from_utf8_lossy(&bytes[start..]).into_owned()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut server) = self.lock().take() {
            // Both fail only if the process is gone already.
            let _ = server.kill();
            let _ = server.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- {}: output of workerd ---\n{}\n--- end ---", self.name, self.output());
        }
    }
}

/// How many alarms a file had: the platform keeps them apart from the objects' own rows.
fn alarms_deleted(file: &Path) -> usize {
    let Ok(database) = rusqlite::Connection::open(file) else { return 0 };
    let query = "SELECT name FROM sqlite_master WHERE type = 'table' AND lower(name) LIKE '%alarm%'";
    let Ok(mut tables) = database.prepare(query) else { return 0 };
    let names = tables.query_map((), |row| row.get::<_, String>(0)).expect("the names of tables");
    let names: Vec<String> = names.map(|name| name.expect("a name")).collect();
    names.iter().map(|name| database.execute(&format!("DELETE FROM \"{name}\""), ()).expect("it is deleted")).sum()
}

fn sqlite_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let files = paths.flat_map(|path| if path.is_dir() { sqlite_files(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "sqlite")).collect()
}

/// Where storage of other versions is kept.
#[must_use]
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn copy_databases(from: &Path, to: &Path) {
    for file in sqlite_files(from) {
        let copy = to.join(file.strip_prefix(from).expect("it lies below"));
        fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
        let _bytes = fs::copy(&file, &copy).expect("a copy");
    }
}

/// The repository's root.
#[must_use]
pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository is there")
}

fn build_folder(test_hooks: bool) -> PathBuf {
    let (variable, default, command) = if test_hooks {
        let command = "node scripts/build.mjs --features test-hooks --out-dir build-test";
        ("HOLDFAST_TEST_BUILD", "build-test", command)
    } else {
        ("HOLDFAST_BUILD", "build", "node scripts/build.mjs")
    };
    let folder = std::env::var_os(variable).map_or_else(|| repository().join(default), PathBuf::from);
    assert!(
        folder.join("index_bg.wasm").is_file(),
        "no built Worker in {}: run `{command}`, or name its folder in {variable}",
        folder.display()
    );
    folder
}

fn write_config(options: &Options, simulator: &Simulator, folder: &Path, ports: (u16, Option<u16>), build: &Path) {
    let closed_port = free_port();
    let vars = json!({
        "LOCAL": options.local.to_string(),
        "KEY_PEPPER": KEY_PEPPER,
        "OPERATOR_KEY": if options.operator { OPERATOR_KEY } else { "" },
        "SIMULATOR_API_KEY": PROVIDER_KEY,
        "CALLBACK_SECRETS": format!("{} {}", config::CALLBACK_SECRET, config::OLD_CALLBACK_SECRET),
        "PROVIDERS": config::providers(&simulator.origin(), closed_port, options.by_hand.as_deref()).to_string(),
        "LIMITS": options.limits.to_string(),
    });
    let vars_path = folder.join("vars.json");
    fs::write(&vars_path, vars.to_string()).expect("the variables are written");
    let storage = folder.join("storage");
    fs::create_dir(&storage).expect("a storage folder");
    if let Some(stored) = &options.stored {
        copy_databases(stored, &storage);
    }
    let mut command = script("workerd-config.mjs");
    command.arg("--out").arg(config_path(folder)).arg("--port").arg(ports.0.to_string());
    if let Some(cron_port) = ports.1 {
        command.arg("--cron-port").arg(cron_port.to_string());
    }
    command.arg("--storage").arg(storage).arg("--build").arg(build).arg("--vars-file").arg(vars_path);
    run(command);
}

fn config_path(folder: &Path) -> PathBuf {
    folder.join("config.capnp")
}

fn workerd() -> &'static Path {
    static WORKERD: OnceLock<PathBuf> = OnceLock::new();
    WORKERD.get_or_init(|| {
        let mut command = script("workerd-config.mjs");
        command.arg("--print-workerd");
        let path = PathBuf::from(run(command).trim());
        assert!(path.is_file(), "no workerd at {}: run `npm ci`", path.display());
        path
    })
}

fn script(name: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(repository().join("scripts").join(name)).current_dir(repository());
    command
}

fn run(mut command: Command) -> String {
    let ran = command.output();
    let output = ran.unwrap_or_else(|error| panic!("{command:?}: {error} (Node 20.3 or newer is needed)"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}: {errors}", output.status);
    String::from_utf8(output.stdout).expect("output in UTF-8")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn answers(port: u16, status: u16) -> Result<(), String> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(|error| error.to_string())?;
    let reply = Client::new(port, "").get("/healthz");
    if reply.status == status { Ok(()) } else { Err(format!("{}: {}", reply.status, reply.text())) }
}
