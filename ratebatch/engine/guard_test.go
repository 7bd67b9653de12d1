package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testGuard shows that SQL which a user typed reaches neither files nor other
// machines, and that Ratebatch's own statements do.
func testGuard(t *testing.T, u *endpointUnderTest) {
	secret := filepath.Join(t.TempDir(), "secret.csv")
	if err := os.WriteFile(secret, []byte("hidden\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u.exec(t, "CREATE TABLE t (a String) ENGINE = MergeTree ORDER BY a")
	for name, statement := range map[string]string{
		"a file":                         "SELECT * FROM file('SECRET', 'CSV', 'a String')",
		"a file, quoted":                 "SELECT * FROM `file`('SECRET', 'CSV', 'a String')",
		"a file, in double quotes":       `SELECT * FROM "file"('SECRET', 'CSV', 'a String')`,
		"a file, with an escape":         "SELECT * FROM `fi\\x6ce`('SECRET', 'CSV', 'a String')",
		"a file, behind a comment":       "SELECT * FROM file /* x */ -- y\n ('SECRET', 'CSV', 'a String')",
		"a file, by its content":         "SELECT file('SECRET')",
		"a file, by a table's name":      `SELECT * FROM "SECRET"`,
		"a file, in the default":         "SELECT * FROM default.`SECRET`",
		"a file, by a parameter":         "SELECT * FROM {default:Identifier}.`SECRET`",
		"a file, in VALUES":              "INSERT INTO t VALUES (file('SECRET'))",
		"a file, in VALUES, quoted":      "INSERT INTO t VALUES ('x'), (`file`('SECRET'))",
		"a file, in a subquery":          "INSERT INTO t SELECT a FROM (SELECT * FROM view(SELECT * FROM file('SECRET', 'CSV', 'a String')))",
		"a file, described":              "DESCRIBE TABLE file('SECRET')",
		"a file, explained":              "EXPLAIN SELECT * FROM file('SECRET', 'CSV', 'a String')",
		"a file, written":                "INSERT INTO FUNCTION file('SECRET.new', 'CSV', 'a String') SELECT 'x'",
		"a file, as output":              "SELECT 1 INTO OUTFILE 'SECRET.new' FORMAT CSV",
		"a file, as input":               "INSERT INTO t FROM INFILE 'SECRET' FORMAT CSV",
		"a file, as a table":             "CREATE TABLE f (a String) ENGINE = File(CSV, 'SECRET')",
		"a file, as a table without =":   "CREATE TABLE f (a String) ENGINE File(CSV, 'SECRET')",
		"a file, as another table":       "CREATE TABLE f AS file('SECRET', 'CSV', 'a String')",
		"a folder, as a database":        "CREATE DATABASE f ENGINE = Filesystem('/etc')",
		"a file, in a filter":            "SELECT * FROM t SETTINGS additional_table_filters = {'t': 'file(\\'SECRET\\') = \\'\\''}",
		"a file, in evaluated text":      "SELECT * FROM eval('SELECT file(''SECRET'')')",
		"a file, in a function":          "CREATE FUNCTION readit AS () -> file('SECRET')",
		"a file, in a view":              "CREATE VIEW v AS SELECT * FROM file('SECRET', 'CSV', 'a String')",
		"a file, in a default":           "CREATE TABLE f (a String DEFAULT file('SECRET')) ENGINE = Memory",
		"a URL":                          "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a String')",
		"a bucket":                       "SELECT * FROM s3('http://127.0.0.1:1/b/k', 'CSV', 'a String')",
		"a bucket's table":               "CREATE TABLE f (a String) ENGINE = S3('http://127.0.0.1:1/b/k', 'CSV')",
		"another server":                 "SELECT * FROM remote('127.0.0.1:1', system.one)",
		"another database":               "SELECT * FROM mysql('127.0.0.1:1', 'd', 't', 'u', 'p')",
		"a program":                      "SELECT * FROM executable('id', 'CSV', 'a String')",
		"a program's table":              "CREATE TABLE f (a String) ENGINE = Executable('id', 'CSV')",
		"a dictionary of a file":         "CREATE DICTIONARY f (a UInt64, b String) PRIMARY KEY a SOURCE(FILE(PATH 'SECRET' FORMAT 'CSV')) LAYOUT(FLAT()) LIFETIME(0)",
		"a disk":                         "CREATE TABLE f (a String) ENGINE = MergeTree ORDER BY a SETTINGS disk = disk(type = local, path = '/tmp/x/')",
		"a backup":                       "BACKUP TABLE t TO File('SECRET.bak')",
		"a backup read":                  "RESTORE TABLE t FROM File('SECRET.bak')",
		"attaching a folder":             "ATTACH TABLE f FROM '/tmp/x' (a String) ENGINE = MergeTree ORDER BY a",
		"credentials":                    "CREATE NAMED COLLECTION f AS url = 'http://127.0.0.1:1/'",
		"stopping the engine":            "SYSTEM SHUTDOWN",
		"killing the engine":             "SYSTEM KILL",
		"dropping the engine's database": "DROP DATABASE default",
		"dropping it if it exists":       "DROP DATABASE IF EXISTS `default` SYNC",
		"detaching it":                   "DETACH DATABASE default",
		"a schema file":                  "SELECT 1 SETTINGS format_schema = '/etc/x:y'",
		"the shell's way":                "WITH x AS (SELECT * FROM file('SECRET', 'CSV', 'a String')) SELECT * FROM x",
	} {
		t.Run(name, func(t *testing.T) {
			statement := strings.ReplaceAll(statement, "SECRET", secret)
			body, _, status := u.curl(t, map[string][]string{"param_default": {"default"}}, []byte(statement))
			if status == "200" || strings.Contains(body, "hidden") {
				t.Errorf("%s: %s %s", statement, status, body)
			}
			if _, err := os.Stat(secret + ".new"); err == nil {
				t.Errorf("%s wrote a file", statement)
			}
		})
	}
	if n := u.count(t, "t"); n != 0 {
		t.Errorf("%d rows of a refused insert are stored", n)
	}
	for _, statement := range []string{
		"SELECT 'profile (x)', 'engine = y', 'a file'",
		"SELECT file, url, disk FROM (SELECT 1 AS file, 2 AS url, 'x' AS disk) WHERE disk = 'x' AND url IN (2)",
		"SELECT engine FROM system.tables WHERE engine = 'File'",
		"SELECT engine FROM system.tables WHERE engine LIKE concat('Fi', 'le') AND engine IN ('S3', 'URL')",
		"SELECT count() FROM merge(currentDatabase(), '^t$')",
		"CREATE TABLE plain (engine String, file String) ENGINE = ReplacingMergeTree ORDER BY engine",
		"INSERT INTO plain (engine, file) VALUES ('x (', 'y')",
		"SELECT * FROM values('a UInt8', 1, 2)",
		"SELECT format('{} {}', 'a', 'b')",
	} {
		if body, _, status := u.curl(t, nil, []byte(statement)); status != "200" {
			t.Errorf("%s: %s %s", statement, status, body)
		}
	}
	ctx := u.WithFileAccess(t.Context())
	var got string
	if err := u.Conn().QueryRow(ctx, "SELECT a FROM file({path:String}, 'CSV', 'a String')", named("path", secret)).Scan(&got); err != nil || got != "hidden" {
		t.Errorf("the product's own statement: %q, %v", got, err)
	}
	if err := u.Conn().Exec(ctx, "SYSTEM SHUTDOWN"); err == nil {
		t.Error("the product's own statement stopped the engine")
	}
}
