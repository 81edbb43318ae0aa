# make test        everything that must be green: vet, lint, tests with the race detector, fuzz smoke, examples
# make quick       vet and tests, without servers, of the packages that differ from main, in all modules: seconds; BASE=HEAD compares with HEAD
# make tools       installs the servers that the tests start, where it can, and says what is missing where it cannot
# make servers     runs the tests of the stores on versions of Redis, Valkey and PostgreSQL, which it downloads; ONLY=redis-6.2
# make bench       measures beside rivals and writes docs/PERFORMANCE.md; BENCH=-short takes 3 minutes, not 25
# make soak        30 minutes of traffic under faults, an hour of simulated histories,
#                  then the tests in their long forms and 10 minutes of each fuzz target
# make mutants     small mistakes in the library, one at a time; prints those that no test notices: hours; ONLY='^core/settle' chooses
# make release     checks that the modules of this commit can be fetched and used as VERSION, and prints the commands that publish them

GO ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 30000x
BENCH ?=
# Modules of their own, so that who uses the library does not see what they need.
NESTED := $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod))

# SQLite is translated from C, and its memory is not that of Go. With the race detector in it, its tests take five times as long. The
# packages beside it keep the detector: a program has one copy of the methods of sync.Map, and if that is the copy of a package
# without it, the detector reports races that are none.
NORACE := -gcflags=modernc.org/sqlite/lib=-race=false

.PHONY: test quick tools servers vet lint unit fuzz bench soak mutants release

test: tools vet lint unit fuzz

quick:
	@GO=$(GO) .ci/quick

tools:
	@.ci/tools

servers:
	@GO=$(GO) ONLY='$(ONLY)' .ci/servers

vet:
	$(GO) vet ./...
	@echo $(NESTED) | xargs -n 1 -P 2 sh -c '$(GO) -C $$0 vet ./...'
	@test -z "$$(gofmt -l .)" || { echo "gofmt wants to change:"; gofmt -l .; exit 1; }
	@for script in servers unit simulate; do sh -n .ci/$$script || exit 1; done

lint:
	$(GO) run $(STATICCHECK) ./...
	@echo $(NESTED) | xargs -n 1 -P 2 sh -c 'cd $$0 && $(GO) run $(STATICCHECK) ./... || { echo "$$0: staticcheck"; exit 1; }'

unit:
	@GO=$(GO) NESTED='$(NESTED)' NORACE='$(NORACE)' .ci/unit

fuzz:
	@set -e; for package in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for target in $$($(GO) -C $$package test -list '^Fuzz' . | grep '^Fuzz'); do \
			echo "$(GO) -C $$package test -run '^$$' -fuzz '^$$target$$' -fuzztime $(FUZZTIME) ."; \
			$(GO) -C $$package test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) .; \
		done; \
	done

bench:
	$(GO) -C bench run . $(BENCH)

soak:
	SOAK=1 $(GO) test -run '^TestSoak$$' -v -timeout 60m ./adapters_test
	GO=$(GO) .ci/simulate
	SOAK=1 $(GO) test -run 'Mutants' -v -timeout 60m ./internal/simulation
	SOAK=1 $(GO) test -run Waiters -v -timeout 30m ./faults_test
	SOAK=1 SOAK_FOR=1m $(GO) test -race -shuffle=on -count=3 -timeout 120m ./...
	@set -e; for module in $(NESTED); do echo "$$module:"; SOAK=1 SOAK_FOR=5m $(GO) -C $$module test -race $(NORACE) -shuffle=on -timeout 120m ./...; done
	$(MAKE) fuzz FUZZTIME=10m

mutants:
	nice -n 10 $(GO) run ./internal/mutants -only '$(ONLY)'

release:
	$(GO) -C internal/release run . -version $(VERSION)
