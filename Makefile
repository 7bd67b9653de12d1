# Ratebatch. 'make help' lists what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help build docs agent dashboard test-dashboard test-browser engine demo test test-ci race test-lab lint verify bench bench-quick bench-full release test-release fuzz clean check-tools

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
GOLANGCI_VERSION := v2.15.0
export CGO_ENABLED ?= 0

# Tests of one package may start an engine of their own; two at a time suit two cores.
TEST_FLAGS ?= -p 2 -timeout 45m
# CI counts what ran and what skipped: it runs the same packages through gotestsum.
GO_TEST ?= go test
# go test takes packages in the order given, each once: what takes longest must not start last.
SLOW_FIRST = ./jobs/cmd/ratebatch ./ratebatch/store ./exporter ./jobs/rate

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check-tools:
	@command -v go >/dev/null || { echo "Go is missing: install Go 1.26 or newer (https://go.dev/dl/)" >&2; exit 2; }
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js (Debian: apt-get install nodejs npm); the embedded engine comes as an npm package" >&2; exit 2; }

build: check-tools agent ## build bin/ratebatch and bin/ratebatch-agent
	@mkdir -p bin
	@echo "building bin/ratebatch $(VERSION)"
	@go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ratebatch ./jobs/cmd/ratebatch

agent: ## build bin/ratebatch-agent alone: static, for any Linux; needs Go only
	@mkdir -p bin
	@echo "building bin/ratebatch-agent $(VERSION)"
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ratebatch-agent ./agent/cmd/ratebatch-agent

dashboard/node_modules/.package-lock.json: dashboard/package-lock.json
	@cd dashboard && npm ci --silent && touch node_modules/.package-lock.json

dashboard: dashboard/node_modules/.package-lock.json ## build the web application into dashboard/dist; `make build` then embeds it
	@cd dashboard && npm run --silent build

# Vite and Vitest need a newer Node than the engine's installer does.
NODE_OK = node -e 'const [a,b]=process.versions.node.split(".").map(Number); process.exit(a>22||(a==22&&b>=12)||(a==20&&b>=19)?0:1)' 2>/dev/null
test-dashboard: ## unit tests of the web application; skipped without Node 20.19 or newer
	@if $(NODE_OK); then $(MAKE) --no-print-directory dashboard/node_modules/.package-lock.json && cd dashboard && npm run --silent check && npm test --silent; \
	else echo "the dashboard's tests skip: they need Node.js 20.19, 22.12 or newer"; fi

test-browser: dashboard engine ## the web application in a real Chromium (Debian: apt-get install chromium); pictures in dashboard/screenshots
	@cd dashboard && npm run --silent test:browser

engine: build ## install the embedded ClickHouse engine into the user's cache
	@bin/ratebatch engine install

demo: engine ## load a real month of usage, rate it, export it and show what it cost
	@bin/ratebatch demo

test: engine test-dashboard ## run all tests
	go vet ./...
	$(GO_TEST) $(TEST_FLAGS) $(SLOW_FIRST) ./...

race: engine ## run all tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race $(TEST_FLAGS) ./...

# One lab at a time on a machine, hence -p 1.
test-lab: engine ## tests against a real libvirtd, QEMU, OVS and OVN: Debian 12, root; installs Debian packages
	RATEBATCH_TEST_LAB=1 go test -p 1 -timeout 20m -run '^TestLab' ./agent/... ./jobs/cmd/ratebatch

bin/tools/golangci-lint-$(GOLANGCI_VERSION):
	@echo "building golangci-lint $(GOLANGCI_VERSION) (once, about two minutes)"
	@mkdir -p bin/tools
	@GOBIN=$(CURDIR)/bin/tools go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv bin/tools/golangci-lint $@

lint: bin/tools/golangci-lint-$(GOLANGCI_VERSION) ## check style and the import arrows of the layout
	$< run ./...

docs: build ## write anew what of docs/ is generated from the program
	@bin/ratebatch config reference > docs/configuration.md
	@bin/ratebatch docs reference docs/reference

verify: build ## check that go.mod is tidy and Go formatted; what is generated, tests compare (make docs writes docs/)
	@go mod tidy -diff
	@gofmt -l $$(git ls-files '*.go') | tee /dev/stderr | (! grep -q .)

bench: engine ## measure, as ratios in one run; writes bench/results.json
	@bin/ratebatch bench

bench-quick: engine ## every benchmark once, small
	@bin/ratebatch bench --quick

bench-full: engine ## the long series
	@bin/ratebatch bench --full

GOTESTSUM_VERSION := v1.13.0
bin/tools/gotestsum-$(GOTESTSUM_VERSION):
	@mkdir -p bin/tools
	@GOBIN=$(CURDIR)/bin/tools go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	@mv bin/tools/gotestsum $@

# One line a package, what failed in full, and at the end what skipped and why; .ci/may-skip says which tests may.
test-ci: bin/tools/gotestsum-$(GOTESTSUM_VERSION) ## as CI runs make test: a line a package, and what skipped and why
	@mkdir -p bin
	$(MAKE) --no-print-directory test GO_TEST='$(CURDIR)/$< --format pkgname --jsonfile bin/test.json --'
	@.ci/skips bin/test.json

NFPM_VERSION := v2.45.2
bin/tools/nfpm-$(NFPM_VERSION):
	@echo "building nfpm $(NFPM_VERSION) (once)"
	@mkdir -p bin/tools
	@GOBIN=$(CURDIR)/bin/tools go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
	@mv bin/tools/nfpm $@

release: check-tools dashboard bin/tools/nfpm-$(NFPM_VERSION) ## archives, deb, rpm, bills of materials and checksums into dist/
	go run ./deploy/release -version $(VERSION) -epoch $$(git log -1 --format=%ct) -nfpm bin/tools/nfpm-$(NFPM_VERSION) -out dist

test-release: release ## what make release wrote: installed, run and compared
	RATEBATCH_TEST_RELEASE=$(CURDIR)/dist go test -count=1 -run '^TestRelease' -v ./deploy/release

FUZZTIME ?= 20s
fuzz: ## run each fuzz target for FUZZTIME
	@set -e; for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg 2>/dev/null | grep '^Fuzz' || true); do \
	    echo "$$pkg $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; done

clean: ## remove what was built and the demo's data
	rm -rf bin demo dist
