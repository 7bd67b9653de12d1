package main

// practice is a small cloud of two projects over 28 hours, rated by a plan of
// its own, in the database that tests share: making tables takes longer than all
// the rest.
const practice = practicePlan + `ratebatch simulate --projects 2 --instances 4 --begin 2026-10-31T20:00:00Z --hours 28 --interval 15m &&
ratebatch plan apply plan.yaml && ratebatch rate --first-period usage`

const practicePlan = `cat > plan.yaml <<'END'
currency: EUR
services:
  - name: instance
    mappings: [{cost: "0.2"}]
END
`

// rejecting runs a command that may exit 3: simulate --faults sends garbage too.
const rejecting = `printf '#!/bin/sh\n"$@" || [ $? = 3 ]\n' > rejecting && chmod +x rejecting`

// late adds usage of an instance that nobody had heard of.
const late = ` &&
ratebatch simulate --seed 7 --projects 1 --instances 1 --hosts 1 --begin 2026-11-01T08:00:00Z --hours 2 --interval 15m`

// documents are all that may hold commands.
var documents = []document{
	{file: "README.md", by: "TestReadme", except: map[string]string{
		"make demo": inCI,
		"make test": inCI,
	}},
	{file: "ARCHITECTURE.md"},
	{file: "CONTRIBUTING.md", except: map[string]string{
		"make help":         "prints the comments of the Makefile's targets",
		"make build":        inCI,
		"make test   ":      inCI,
		"make race":         "takes longer than CI has, and needs a C compiler",
		"make test-lab":     inCI + " where there are Debian 12 and root",
		"make dashboard":    inCI + ", as a part of make test-release",
		"make test-browser": inCI + " where Chromium can be had",
		"make lint":         inCI,
		"make bench":        "takes long on a quiet machine; CI runs make bench-quick",
		"make fuzz":         "takes minutes for each parser; make test runs the inputs that are kept",
		"RATEBATCH_TEST_":   "takes up to hours; make test runs a part of the same tests",
		"CGO_ENABLED=1 go":  "needs a C compiler, and takes long",
	}},
	{file: "docs/README.md"},
	{file: "docs/explanation.md"},
	{file: "docs/tutorial.md", except: map[string]string{
		"make build":  inCI,
		"export PATH": "the program is on the path here",
		"mkdir -p ~/": "the test has a folder of its own",
	}},
	{file: "docs/howto/reprocess.md", setup: practice},
	{file: "docs/howto/late-usage.md", setup: practice + late},
	{file: "docs/howto/server.md", setup: practice, except: map[string]string{
		"ratebatch --clickhouse":           elsewhere + "a ClickHouse server; TestDumpAndLoad does it where there is one",
		"sh deploy/clickhouse/users.sh":    elsewhere + "a ClickHouse server; TestUsersMayDoTheirWorkAndNoMore reads users.sql",
		"systemctl stop 'ratebatch-":       asRoot,
		"systemctl start $(systemctl list": asRoot,
	}},
	{file: "docs/howto/finance-files.md", setup: practice, except: map[string]string{
		"duckdb":  elsewhere + "DuckDB's program; TestReaderMatrix of package exporter runs the SQL",
		"python3": elsewhere + "pyarrow",
	}},
	{file: "docs/howto/alerts.md", setup: practice, except: map[string]string{
		"ratebatch --metrics-push": elsewhere + "a pushgateway; telemetry_test.go has a stand-in",
	}},
	{file: "docs/tiers.md", by: "TestTiersDocument"},
	{file: "docs/agent.md", by: "TestTheCommandsOfTheDocumentation in agent/cmd/ratebatch-agent"},
	{file: "docs/configuration.md", by: "TestConfigurationReferenceIsUpToDate"},
	{file: "docs/api.md", except: map[string]string{
		"ratebatch serve  ": neverEnds + "TestServeAnswersAsTheContractSays",
		"ratebatch serve --listen 0.0.0.0:8443 --tokens":       neverEnds + "TestServeOverTLSWithTokens",
		"ratebatch serve --cloudkitty-api --no-auth":           neverEnds + "TestCloudKittyAnswersTheRecordedClient",
		"ratebatch serve --cloudkitty-api --cloudkitty-listen": neverEnds + "TestCloudKittyAsksKeystoneWhoseTokenItIs",
	}},
	{file: "docs/dashboard.md", except: map[string]string{
		"ratebatch serve  ": neverEnds + "TestServeAnswersAsTheContractSays",
		"ratebatch serve --listen 0.0.0.0:8443 --tokens":         neverEnds + "TestServeOverTLSWithTokens",
		"ratebatch serve --listen 10.0.0.7:8080 --trusted-proxy": neverEnds + "TestServeBehindATrustedProxy",
	}},
	{file: "docs/engine.md", setup: practice, replace: []string{"FOLDER", "folder", "engine load", "--data other --database loaded engine load"}, except: map[string]string{
		"ratebatch engine sql ":   "a prompt; the tests of ratebatch/engine/sqlshell answer it",
		"ratebatch engine serve ": neverEnds + "TestEngineServe",
	}},
	{file: "docs/finance.md", setup: practice, replace: []string{"/srv/finance --sign-key", "signed --sign-key", "verify /srv/finance --key", "verify signed --key", "/srv/", "", "--month 2026-11", "--month 2026-10"}},
	{file: "docs/from-cloudkitty.md", except: map[string]string{
		"cloudkitty ":                  elsewhere + "a CloudKitty",
		"ratebatch compare-cloudkitty": elsewhere + "its answers; TestAMonthIsComparedWithCloudKitty makes some up",
	}},
	{file: "docs/ingest.md", broker: true, setup: rejecting, replace: []string{"--instances 1000 --hours 2", "--instances 20 --hours 2", "ratebatch ingest --kafka", "./rejecting ratebatch ingest --session 6s --kafka"}, except: map[string]string{
		"ratebatch topics apply --kafka broker1:9093":             elsewhere + "a broker with TLS; TestTopicsApplyAndSimulateOnADevelopmentBroker makes users and rights",
		"ratebatch dev kafka":                                     neverEnds + "TestDevKafkaEndsWhenToldTo",
		"ratebatch ingest --follow":                               neverEnds + "TestBrokerRestartsWhileReading",
		"ratebatch migrate --kafka-engine --kafka broker1:9092\n": "makes tables that begin to read at once, which the embedded engine does only while it runs; TestTheKafkaEngineFillsTheSameTables makes them",
	}},
	{file: "docs/scale.md"},
	{file: "docs/state.md", setup: practice + " && echo project-0001,alpha,Default > projects.csv", except: map[string]string{
		"ratebatch scopes fetch keystone":       elsewhere + "a Keystone; scopes_test.go has a stand-in",
		"ratebatch rate --scopes-from keystone": elsewhere + "a Keystone; scopes_test.go has a stand-in",
	}},
	{file: "deploy/README.md", replace: []string{"/etc/systemd/system", "units", "/etc/cron.d/ratebatch", "crontab",
		"runuser -u ratebatch -- ", "", "cd /var/lib/ratebatch && ", "", "/etc/ratebatch/plan.yaml", "fixtures/plans/demo.yaml"}, except: map[string]string{
		"install ":   asRoot + "; TestTheStepsOfDeployingFindTheirFiles looks for what it installs",
		"systemctl ": asRoot,
		"docker ":    elsewhere + "Docker; go test ./deploy reads compose.yaml by its schema",
		"kubectl ":   elsewhere + "a cluster; go test ./deploy checks the manifests with Kubernetes' own types",
	}},
	{file: "deploy/RUNBOOK.md"},
}
