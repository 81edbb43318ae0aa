# make test        everything that must be green: vet, lint, tests with the race detector, fuzz smoke, examples
# make tools       installs the servers that the tests start, where it can, and says what is missing where it can not
# make bench       measures beside rivals and writes docs/PERFORMANCE.md; BENCH=-short takes 2 minutes, not 15
# make soak        the tests that take long

GO ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 5s
BENCH ?=
# Modules of their own, so that who uses the library does not see what they need.
NESTED := $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod))

.PHONY: test tools vet lint unit fuzz bench soak

test: tools vet lint unit fuzz

tools:
	@.ci/tools

vet:
	$(GO) vet ./...
	@set -e; for module in $(NESTED); do $(GO) -C $$module vet ./...; done
	@test -z "$$(gofmt -l .)" || { echo "gofmt wants to change:"; gofmt -l .; exit 1; }

lint:
	$(GO) run $(STATICCHECK) ./...
	@set -e; for module in $(NESTED); do echo "$$module: staticcheck"; (cd $$module && $(GO) run $(STATICCHECK) ./...); done

unit:
	$(GO) test -race -shuffle=on ./...
	@set -e; for module in $(NESTED); do echo "$$module:"; $(GO) -C $$module test -race -shuffle=on ./...; done

fuzz:
	@set -e; for package in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$(GO) test -run '^$$' -fuzz '^$$target$$' -fuzztime $(FUZZTIME) $$package"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

bench:
	$(GO) -C bench run . $(BENCH)

soak:
	SOAK=1 $(GO) test -race -shuffle=on -count=3 -timeout 60m ./...
	$(MAKE) fuzz FUZZTIME=10m
