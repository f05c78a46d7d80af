# Two commands do everything on a fresh machine: `make lab` and `make test`.
SHELL       := /bin/bash
GO          ?= go
BIN         := bin/postern
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS     := -s -w -X main.version=$(VERSION)
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
CONTROLLERGEN := sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
GOTESTSUM   := gotest.tools/gotestsum@v1.13.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
PROMTOOL    := github.com/prometheus/prometheus/cmd/promtool@v0.316.0
KREW        := sigs.k8s.io/krew/cmd/krew@v0.4.3
NFPM        := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4

# What the end-to-end tests talk to: programs that we did not write.
E2E_PACKAGES := iproute2 nftables conntrack coturn procps curl wireguard-tools wireguard-go tmux bash-completion zsh fish dnsmasq-base miniupnpd-nftables bind9 bind9-dnsutils \
	avahi-daemon avahi-utils dbus squid tinyproxy \
	containerd runc containernetworking-plugins busybox-static iptables util-linux qemu-user-static

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  \1\t\2/' | expand -t 18

.PHONY: build
build: ## Build bin/postern, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/postern

.PHONY: lab
lab: build ## Two gateways, two API servers and the internet between them, in one process
	$(BIN) lab $(LAB_FLAGS)

# The race detector slows bulk work about tenfold, so the packages with long runs (the
# 1 GB transfers, the 1,000 kills during a write, each pair of NATs) shorten them under it,
# and test-long has them without it, at full length. Most tests wait most of the time, hence
# more packages at a time than processors; and no program ends with the second's sleep that
# the race detector gives to what might still race. In each list those that take longest come
# first, so that none ends alone. The lab comes alone: its gateways judge how fast they answer
# each other.
LAB  := ./testenv/lab
SLOW := ./control/gateway ./netstack ./tui/screen ./cmd/postern ./discovery/path ./tunnel
# Without goroutines there are no races: these are tested without the detector (make lint checks).
PLAIN := ./netstack/sender ./control/mcs ./control/catalogue ./control/config ./control/history ./control/report ./control/verdict ./control/way ./tui/cell ./tui/chart ./tui/past
LONG := ./netstack ./tui/screen ./control/clusterset ./discovery/path ./control/state ./tunnel ./control/check ./tunnel/underlay ./discovery
MODULE := github.com/postern-dev/postern
RACE := GORACE=atexit_sleep_ms=10 $(GO) test -race -timeout 25m
.PHONY: test test-race test-plain test-long test-below test-lab test-lab-all
test: test-race test-plain test-lab ## All tests that need no root, with the race detector; the longest shortened
test-race:
	$(RACE) -p 5 $(SLOW) $(filter-out $(PLAIN) $(LAB),$(patsubst $(MODULE)/%,./%,$(shell $(GO) list ./...)))
test-plain:
	$(GO) test -timeout 15m $(PLAIN)
test-lab:
	$(RACE) $(LAB)
test-long: ## What `make test` shortens, at full length, and each scenario of the lab
	$(GO) test -timeout 30m $(LONG)
	$(GO) test -count 1 -run TestAFlood ./control/gateway
	$(MAKE) -j 2 test-below test-lab-all
# Both wait most of the time: the lab's gateways, which judge how fast they answer each other, have a
# processor for themselves.
test-below:
	$(GO) test -timeout 30m ./netstack -below
test-lab-all: ## Each scenario of the lab
	$(GO) test -tags e2e -timeout 60m $(LAB)

.PHONY: faults
FAULTS ?= 60
faults: ## FAULTS generated faults, and how many of them the checks name rightly (figures)
	$(if $(filter 0,$(shell id -u)),unshare --mount) env POSTERN_FAULTS=$(FAULTS) $(GO) test -count 1 -v -timeout 60m -run TestGeneratedFaultsAreNamed $(LAB)

# What an operator sees 10 s after a fault: of each of the lab's, and of 20 generated ones.
.PHONY: screens
screens: build e2e-packages ## The live screen at 120x40 10 s after each of 45 faults, in dist/screens, and what is right in dist/screens-answers.txt
	@rm -rf dist/screens && mkdir -p dist/screens
	POSTERN_SCREENS=$(CURDIR)/dist/screens $(GO) test -count 1 -v -timeout 60m -run TestScreensOfFaults $(LAB)

.PHONY: pictures
pictures: build e2e-packages ## Record the live screen of five faults, into docs/pictures
	POSTERN_PICTURES=$(CURDIR)/docs/pictures $(GO) test -count 1 -v -timeout 20m -run TestPicturesOfFaults $(LAB)

.PHONY: test-healthy
HOURS ?= 1000
test-healthy: ## HOURS of virtual time of healthy pairs over a way with loss and jitter, checked, and over each pair of NATs, without a false verdict
	POSTERN_HEALTHY_HOURS=$(HOURS) $(GO) test -count 1 -v -timeout 30m -run 'TestAHealthyPairOnABadWay|TestHealthyPairsAreNotLost' ./control/check ./discovery/path

.PHONY: test-healthy-real
MINUTES ?= 30
test-healthy-real: ## MINUTES (30) of healthy pairs of gateways, one for each pair of NATs, alongside two busy loops, checked without a false verdict
	@trap 'kill $$(jobs -p)' EXIT; for loop in 1 2; do while :; do :; done & done; \
	POSTERN_HEALTHY_REAL=$(MINUTES)m $(GO) test -count 1 -v -timeout 90m -run TestHealthyPairsHaveNoFault $(LAB)

.PHONY: test-flood
test-flood: ## A minute of each flood of one peer, and what another peer notices of it (figures)
	POSTERN_FLOOD=60s $(GO) test -count 1 -v -run TestAFloodOfOnePeer ./control/gateway

.PHONY: test-churn
test-churn: ## 10,000 connections to services of clusters while pods come, go and fail readiness
	POSTERN_CHURN=10000 $(GO) test -count 1 -v -run 'TestPodsThatComeAndGo|TestClientsKeepTheirPods' ./control/gateway

.PHONY: test-interop
CONNECTIONS ?= 1000000
test-interop: ## As root: CONNECTIONS (a million) over a bad path to the kernel's TCP, every byte compared
	POSTERN_CONNECTIONS=$(CONNECTIONS) $(GO) test -tags e2e -count 1 -v -timeout 6h -run TestKernelTCP ./testenv/e2e

.PHONY: test-lossy
LOSSY ?= 3m
test-lossy: build ## As root: gateways with 64 MiB and four bulk streams both ways over lossy paths of 100 and 200 ms, LOSSY (3m) each
	POSTERN_LOSSY=$(LOSSY) $(GO) test -tags e2e -count 1 -v -timeout 1h -run TestSmallGatewaysOverALossyPath ./testenv/e2e

# The package with the longest tests, which wait most of the time, runs beside all others.
# A failing test's log comes with its result, among hundreds of lines; what every test
# logged, the figures among it, is in dist/e2e.json.
.PHONY: e2e
e2e: build older test-long e2e-packages kube-binaries test-arm64 alerts ## Tests that need root: network namespaces, nftables, a real API server
	@mkdir -p dist
	$(GO) test -tags e2e -count 1 -run 'Shell|Fish' ./cmd/postern
	POSTERN_OLDER='$(OLDER_PROGRAMS)' $(GO) run $(GOTESTSUM) --format testname --jsonfile dist/e2e.json -- -tags e2e -count 1 -timeout 1h -p 2 ./testenv/e2e/... ./bench/limits ./testenv/netlab/... ./testenv/kube/... ./discovery/relay/... ./control/kube/...

# Programs of earlier versions, VERSION=REVISION, which the tests of skew meet. v0.1.0 was not
# tagged. A clone without the history does without them, and says so.
OLDER := v0.1.0=277ed32 $(foreach tag,$(filter-out v0.1.0,$(shell git tag --list 'v*' --sort=-version:refname 2>/dev/null | head -n 2)),$(tag)=$(tag))
OLDER_PROGRAMS = $(foreach o,$(OLDER),$(addprefix $(firstword $(subst =, ,$(o)))=,$(wildcard $(CURDIR)/dist/older/$(lastword $(subst =, ,$(o)))/postern)))
.PHONY: older
older: ## Build what the tests of skew meet, into dist/older
	@for revision in $(foreach o,$(OLDER),$(lastword $(subst =, ,$(o)))); do \
	  dir=dist/older/$$revision; test -x $$dir/postern && test -d $$dir/chart && continue; \
	  git cat-file -e $$revision^{commit} 2>/dev/null || { echo "there is no $$revision in this clone: its skew is not tested"; continue; }; \
	  mkdir -p $$dir/src && git archive $$revision | tar -x -C $$dir/src && \
	  (cd $$dir/src && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o ../postern ./cmd/postern) && \
	  rm -rf $$dir/chart && mv $$dir/src/cmd/postern/deploy/chart $$dir/chart && rm -rf $$dir/src || exit; \
	done

SKEW_ROUNDS ?= 200
.PHONY: test-skew
test-skew: build older ## As root: gateways of this version and of earlier ones, and SKEW_ROUNDS (200) upgrades and rollbacks; writes docs/versions.md
	SKEW_ROUNDS=$(SKEW_ROUNDS) POSTERN_OLDER='$(OLDER_PROGRAMS)' $(GO) test -tags e2e -count 1 -v -timeout 2h -run 'TestSkew$$' ./testenv/e2e -update

.PHONY: test-helm
test-helm: build older e2e-packages kube-binaries ## As root: helm upgrades and rolls back gateways of this version and of earlier ones, which are used meanwhile
	POSTERN_OLDER='$(OLDER_PROGRAMS)' $(GO) test -tags e2e,helm -count 1 -v -timeout 30m -run TestHelmSkew ./testenv/e2e

# What parses, signs and forwards, a minute and a half. Emulation of system calls alone does
# not tell sockets of errors, which tunnel/underlay is about, and is too slow for discovery/path.
ARM64 := ./control/forward ./control/ticket ./discovery/portmap ./control/config ./discovery/stunwire ./tunnel/peer ./tunnel/uapi
.PHONY: test-arm64
test-arm64: e2e-packages ## Unit tests as an arm64 program, emulated
	CGO_ENABLED=0 GOARCH=arm64 $(GO) test -count 1 -exec qemu-aarch64-static $(ARM64)

# What is in the images of the suite's pods.
MCS_PACKAGES := socat netcat-openbsd bind9-dnsutils
.PHONY: test-mcs
test-mcs: build e2e-packages kube-binaries ## As root: the conformance suite of the Multi-Cluster Services API, two clusters and three; reports in dist/mcs-conformance
	@missing=; for p in $(MCS_PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then apt-get update -q && apt-get install -y -q --no-install-recommends $$missing; fi
	$(GO) test -tags e2e,mcs -count 1 -v -timeout 1h -run TestMCSConformance ./testenv/e2e

.PHONY: test-clusterset
WORKLOAD ?= 10m
test-clusterset: build e2e-packages kube-binaries ## As root: 500 exports in three clusters and what takes things away meanwhile; an etcd client for WORKLOAD (10m) over a bad path (figures)
	POSTERN_WORKLOAD=$(WORKLOAD) $(GO) test -tags e2e,mcs -count 1 -v -timeout 2h -run 'TestFiveHundredExports|TestWorkload' ./testenv/e2e

.PHONY: test-clusterchurn
CHURN   ?= 10000
CLIENTS ?= 1000
FLOWS   ?= 100000
test-clusterchurn: build e2e-packages kube-binaries ## As root: CHURN (10,000) connections between real clusters while pods come and go; CLIENTS (1,000) that keep their pods; FLOWS (100,000) of datagrams through one import
	POSTERN_CHURN=$(CHURN) POSTERN_CLIENTS=$(CLIENTS) POSTERN_FLOWS=$(FLOWS) $(GO) test -tags e2e,mcs -count 1 -v -timeout 1h -run 'TestPodsComeAndGo|TestManyClients' ./testenv/e2e

.PHONY: e2e-packages
e2e-packages:
	@missing=; for p in $(E2E_PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then apt-get update -q && apt-get install -y -q --no-install-recommends $$missing; fi

.PHONY: kube-binaries
kube-binaries: ## Build etcd and Kubernetes for the tests (minutes the first time, then cached)
	$(GO) run ./testenv/kube/cmd/kube-binaries

# The two minors of Kubernetes before the newest, which `make e2e` is about, each with the major
# version of helm that installs the chart.
KUBE_VERSIONS ?= v1.36.3:4 v1.35.4:3
.PHONY: e2e-versions
e2e-versions: build e2e-packages ## As root: the essential scenarios of clusters on each of KUBE_VERSIONS (VERSION:HELM), and what needs an API server alone
	@for v in $(KUBE_VERSIONS); do echo "Kubernetes $${v%:*}, Helm $${v#*:}" && export POSTERN_HELM=$${v#*:} && \
	a=$$($(GO) run ./testenv/kube/cmd/kube-binaries -version $${v%:*}) && export KUBEBUILDER_ASSETS=$$a && \
	$(GO) test -tags e2e -count 1 -run 'ClusterServes|APIServer|WaitFor' ./testenv/kube && \
	$(GO) test -tags e2e -count 1 -p 1 ./control/kube/... && \
	$(GO) test -tags e2e -count 1 -short -timeout 20m -run 'TestClusters$$|TestServicesAcrossClusters' ./testenv/e2e || exit 1; done

.PHONY: image
image: ## Build dist/postern.tar, a reproducible OCI image for amd64 and arm64
	@mkdir -p dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(GO) run ./cmd/postern/deploy/image -o dist/postern.tar --arch amd64,arm64 --version $(VERSION)

# The same bytes for one commit, wherever and whenever it is made (docs/decisions/0023-releases.md).
RELEASE ?= dist/$(VERSION)
.PHONY: release
release: ## Make what VERSION=v0.2.0 has, of a clean tree: archives, deb and rpm, image, chart, SBOMs, krew manifest, checksums, provenance
	cmd/postern/deploy/package/release $(VERSION) $(RELEASE) $(GO) run $(NFPM)

# What the test of a release looks at packages with, and boots machines with.
RELEASE_PACKAGES := mmdebstrap rpm iproute2 util-linux
.PHONY: test-release
test-release: ## As root: make a release twice, compare the bytes, install the deb in clean Debians and boot them
	@missing=; for p in $(RELEASE_PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then apt-get update -q && apt-get install -y -q --no-install-recommends $$missing; fi
	KREW=$(KREW) $(GO) test -tags release -count 1 -v -timeout 1h ./cmd/postern/deploy/package

.PHONY: chart
chart: ## Pack the chart as VERSION in dist, for `helm push` and as an OCI artefact
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(GO) run ./cmd/postern/deploy/package/chart -o dist -version $(VERSION)

# Without the discovery of targets, which rules have nothing to do with and which is most of it.
.PHONY: alerts
alerts: ## Test when the alerts fire and when they end, with promtool (minutes the first time, then cached)
	cd cmd/postern/deploy/alerts && $(GO) run -tags remove_all_sd $(PROMTOOL) test rules alerts_test.yaml

.PHONY: test-alerts
test-alerts: build alerts ## As root: a fault for each alert, which fires of what gateways export then, and ends when it is fixed
	PROMTOOL='$(GO) run -tags remove_all_sd $(PROMTOOL)' $(GO) test -tags e2e -count 1 -v -run TestAlertsFireAndEnd ./testenv/e2e

.PHONY: vex
vex: build ## Write dist/postern.openvex.json: why what scanners find in the modules does not affect bin/postern
	@mkdir -p dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(GO) run ./cmd/postern/deploy/vex -o dist/postern.openvex.json -version $(VERSION) $(BIN)

# One target after the other, FUZZTIME each; FUZZ is a pattern of their names. Without fuzzing
# `make test` runs the corpus of each.
FUZZTIME ?= 5m
FUZZ     ?= .
.PHONY: fuzz
fuzz: ## Fuzz whatever reads what others send, FUZZTIME (5m) for each target
	@git grep -oE '^func Fuzz[A-Za-z0-9]+' -- '*_test.go' | sed -E 's#^(.*)/[^/]*:func #./\1 #' | grep -E ' .*$(FUZZ)' | while read -r pkg name; do \
		echo "$$pkg $$name"; $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg </dev/null || exit 1; \
	done

.PHONY: bench
bench: build ## Throughput and memory against the stock WireGuard netstack, in one run
	$(GO) run ./bench/cmd/bench

.PHONY: bench-wan
bench-wan: ## TCP and keystrokes over long, lossy and shared paths against tsnet and the kernel (seven hours)
	$(GO) run ./bench/cmd/wan

.PHONY: bench-kubectl
RUNS   ?= 3
BEFORE ?= dist/older/277ed32/postern
bench-kubectl: build older e2e-packages kube-binaries ## As root: kubectl cp and a LIST of 100 MB through gateways over 100 ms and 1 % of loss, RUNS (3) times, and once with the program BEFORE (of 277ed32)
	POSTERN_KUBECTL=$(RUNS) POSTERN_OLDER='before=$(abspath $(BEFORE))' $(GO) test -tags e2e -count 1 -v -timeout 4h -run TestKubectlOverALongPath ./testenv/e2e

.PHONY: bench-scale
bench-scale: build ## A gateway with 1 to 1,000 idle peers, all of them coming back at once, a flood of handshakes
	$(GO) run ./bench/cmd/scale

.PHONY: bench-tui
REST ?= 60s
bench-tui: build ## The live screen of a gateway with 1,000 peers: processor, bytes a second, key to picture, also over a link of 300 ms; REST (60s) each
	POSTERN_BENCH_TUI=$(REST) $(GO) test -count 1 -v -run TestAThousandPeers ./bench/screen

# The CRDs and the copying methods of the types that they are made of.
API_TYPES := control/kube/v1alpha1
CRDS      := cmd/postern/deploy/chart/definitions
GENERATE  := $(GO) run $(CONTROLLERGEN) object crd:maxDescLen=400 paths=./$(API_TYPES)
.PHONY: generate
generate: ## Make the CRDs of the chart from the Go types
	$(GENERATE) output:object:dir=$(API_TYPES) output:crd:dir=$(CRDS)

.PHONY: generated
generated:
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && mkdir "$$tmp/types" "$$tmp/crds" && \
	$(GENERATE) output:object:dir="$$tmp/types" output:crd:dir="$$tmp/crds" && \
	diff -u $(API_TYPES)/zz_generated.deepcopy.go "$$tmp/types/zz_generated.deepcopy.go" && diff -ru $(CRDS) "$$tmp/crds" || \
	{ echo "not what the types of $(API_TYPES) say: make generate"; exit 1; }

.PHONY: lint
# The tag e2e adds files everywhere and takes one away, in the lab.
lint: generated ## Format, vet, static analysis and the layering of imports
	@! git grep -nE '^[[:space:]]+go [a-z]|\.Go\(' -- $(PLAIN) || { echo "test what starts goroutines with the race detector"; exit 1; }
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "not formatted with gofmt:"; echo "$$out"; exit 1; }
	$(GO) mod tidy -diff
	$(GO) run $(GOLANGCI) run --build-tags e2e,mcs,helm ./...
	$(GO) run $(GOLANGCI) run $(LAB)

.PHONY: vuln
vuln: ## Known vulnerabilities in what is linked (needs the network for its database)
	$(GO) run $(GOVULNCHECK) ./...

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist
