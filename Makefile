# `make` prints its targets.
.PHONY: help test race nightly nightly-processes nightly-pg check fuzz crash torture failover soak-clients kills golden freeze tag bench bench-compare walk demo
help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
test: ## all tests, in shuffled order (three minutes on two idle cores)
	go test -shuffle=on ./...
race: ## all tests under the race detector
	go test -race -timeout 20m ./...
check: ## gofmt, vet, staticcheck, import map and package docs
	@test -z "$$(gofmt -l . | grep -v /testdata/)" || { gofmt -l .; exit 1; }
	go vet ./...
	go tool -modfile=internal/tools/go.mod staticcheck ./...
	go test -count=1 -run 'TestImportMap|TestPackageDocs|TestErrorsWrap' .
nightly: ## all tests in their long form: every seed, every operation, every kind of text
	CTXPAGE_LONG=1 go test -timeout 90m ./...
nightly-processes: failover soak-clients kills ## the long tests of many processes at one file (35 minutes)
nightly-pg: ## the long tests of pgstore: 20,000 operations through kills, cuts and a failover; a partition (root, Linux); 100,000 commits beside a snapshot; a million pages (30 minutes)
	cd pgstore && CTXPAGE_LONG=1 go test -count=1 -timeout 90m -v -run 'TestHaul|TestPartition|TestLongSnapshot|TestNewcomers' .
fuzz: ## every fuzz target for 30 s
	@for p in $$(go list ./...); do for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz'); do \
		echo "== $$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime 30s -fuzzminimizetime 20x $$p || exit 1; done; done
crash: ## the kill and crash tests alone, verbose
	go test -count=1 -v -run 'Kill|Crash|Cut' . ./internal/filestore ./internal/systest ./wal ./manifest
torture: ## linearizability, power cuts (root, Linux) and a short soak, in a module of their own
	cd internal/torture && go test -count=1 -v . && go run ./cmd/soak -ops 2000 -runs 20 -rate 0 -keep -1s -flat 1.5
failover: ## 20 histories of 10,000 operations by 8 processes whose owner is killed, judged by porcupine (2 minutes)
	cd internal/torture && go test -count=1 -timeout 60m -v -run FailOver . -failover.histories 20 -failover.ops 10000 -failover.every 700ms
soak-clients: ## 12 minutes of 8 client processes whose owner is killed: no process, file, descriptor or goroutine is left
	cd internal/torture && go test -count=1 -timeout 60m -v -run SoakClients . -clients.for 12m -clients.kill 200s
kills: ## 2,000 owners killed under four writers (20 minutes)
	go test -count=1 -timeout 90m -v -run TestOwnersKilled ./internal/remote -kills 2000
golden: ## rewrite golden files; then read the diff
	go test ./wal ./render -update
	go test ./cmd/dbctl -run TestFrozen -update
freeze: ## VERSION=v0.1.0: keep the golden databases, the protocol and the migrations of this revision, before it is tagged; every later revision is tested with them
	@case "$(VERSION)" in v[0-9]*.[0-9]*.[0-9]*) ;; *) echo "usage: make freeze VERSION=v0.1.0"; exit 2;; esac
	@test ! -e internal/filestore/testdata/released/$(VERSION) || { echo "$(VERSION) is frozen already"; exit 1; }
	mkdir -p internal/filestore/testdata/released serve/testdata/released pgstore/testdata/released
	cp -r internal/filestore/testdata/golden internal/filestore/testdata/released/$(VERSION)
	cp serve/testdata/schema.json serve/testdata/released/$(VERSION).json
	cp -r pgstore/migrations pgstore/testdata/released/$(VERSION)
tag: ## VERSION=v0.1.0: tag this commit, once it is frozen, for the library and for each module beside it
	@test -d internal/filestore/testdata/released/$(VERSION) || { echo "first: make freeze VERSION=$(VERSION)"; exit 2; }
	@for d in $$(git ls-files '*go.work' | xargs -n1 dirname); do grep -q "github.com/ctxpage/ctxpage $(VERSION)$$" $$d/go.mod || { echo "$$d/go.mod requires another version of the library than $(VERSION)"; exit 2; }; done
	@for t in $(VERSION) $$(git ls-files '*go.work' | xargs -n1 dirname | sed 's,$$,/$(VERSION),'); do git tag -a -m "ctxpage $(VERSION)" $$t && echo "$$t"; done
bench: ## all benchmarks, short
	go test -run '^$$' -bench . -benchtime 300ms ./bench
bench-compare: ## REF=<commit>: the benchmarks of REF and of this tree, interleaved, through benchstat
	@test -n "$(REF)" || { echo "usage: make bench-compare REF=<commit>"; exit 2; }
	@d=$$(mktemp -d) && git worktree add -q $$d/ref $(REF) && trap 'git worktree remove --force '$$d'/ref; rm -rf '$$d EXIT && \
	(cd $$d/ref && go test -c -o $$d/old ./bench) && go test -c -o $$d/new ./bench && \
	for i in 1 2 3 4 5 6 7 8; do (cd bench && $$d/old -test.run '^$$' -test.bench '$(or $(BENCH),.)' -test.benchtime 200ms >> $$d/old.txt; \
	$$d/new -test.run '^$$' -test.bench '$(or $(BENCH),.)' -test.benchtime 200ms >> $$d/new.txt); done; \
	go tool -modfile=internal/tools/go.mod benchstat $$d/old.txt $$d/new.txt
walk: ## the walk of one datum, told as it goes
	go test -count=1 -v -run TestWalk .
demo: ## the main job on this repository
	go run ./cmd/dbctl demo
