// Package adaptertest has the tests that every adapter for an HTTP framework passes: what a client sees, on each kind of store,
// and what the framework does with requests and responses, on one.
package adaptertest

import (
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/suite"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/redisstore"
	"github.com/go-idem/idem/internal/redistest"
)

// Stores is every store that the behaviours are shown on: on each of them in all frameworks.
var Stores = []struct {
	Name string
	New  func(testing.TB) driver.Store
}{
	{"memory", func(testing.TB) driver.Store { return memstore.New() }},
	{"redis", func(tb testing.TB) driver.Store { return redisstore.New(redistest.Shared(tb).Client(tb)) }},
	{"redis behind sentinel", func(tb testing.TB) driver.Store {
		client, _ := redistest.Sentinel(tb)
		return redisstore.New(client)
	}},
	{"redis cluster", func(tb testing.TB) driver.Store { return redisstore.New(redistest.Cluster(tb)) }},
}

// sample has the behaviours that RunSample runs.
var sample = []string{"TestReplay", "TestConcurrency", "TestOutcomes"}

// RunOn runs the behaviours of the frameworks on one store, also from one framework to another.
func RunOn(t *testing.T, store driver.Store, frameworks []Framework) {
	for _, f := range frameworks {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			suite.Run(t, &Behaviours{framework: f, store: store})
		})
	}
	runAcross(t, store, frameworks)
}

// runAcross repeats requests to each framework at each other one.
func runAcross(t *testing.T, store driver.Store, frameworks []Framework) {
	t.Run("FRM-01 from one framework to another", func(t *testing.T) {
		t.Parallel()
		isReplayedElsewhere(t, store, frameworks)
		waitsForARunElsewhere(t, store, frameworks[1], frameworks[len(frameworks)-2])
	})
}

// Run runs all tests of this package for an adapter in a module of its own: those that depend on the store on one in memory,
// and a sample of them on Redis. With SOAK set, it runs them on all stores.
func Run(t *testing.T, f Framework) {
	for _, s := range Stores {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			switch isLong := os.Getenv("SOAK") != ""; {
			case isLong || s.Name == "memory":
				store := s.New(t)
				suite.Run(t, &Behaviours{framework: f, store: store})
				runAcross(t, store, []Framework{HTTP, f})
			case s.Name == "redis" && !testing.Short():
				RunSample(t, s.New(t), f)
			default:
				t.Skip("with SOAK")
			}
		})
	}
	t.Run("once", func(t *testing.T) { RunOnce(t, f) })
}

// RunSample runs some behaviours of a framework on a store: for an adapter or a store in a module of its own. How the engine uses a
// store does not depend on the adapter.
func RunSample(t *testing.T, store driver.Store, f Framework) {
	suite.Run(t, &Behaviours{framework: f, store: store, only: sample})
}

// cases has the tests that do not depend on the store.
var cases = []func(*testing.T, Framework){
	TestABodyIsAsLongAsDeclaredOrNotReplayed,
	TestADecisionCountsIfTheClientLeavesALongResponse,
	TestADeadlineInsideHoldsTheKeyUntilTheHandlerReturns,
	TestAFlushThroughResponseControllerKeepsTheStatus,
	TestAHijackThatIsRefusedSendsNothing,
	TestAMiddlewareOnARouteDoesNotConflictWithOneOnAll,
	TestAMistypedRouteDoesNotUseItsKey,
	TestAQuotaCountsByTheScopeItWasGiven,
	TestARequestTargetInAbsoluteFormIsThatInOriginForm,
	TestAStreamOverTheLimitIsReplayedWithoutItsBody,
	TestAStreamWhoseClientLeavesIsCancelledAndNotReplayedInPart,
	TestAStricterMiddlewareOnARouteIsRefusedLoudlyBehindOneOnAll,
	TestATargetThatIsSpeltAnotherWayIsAnotherRequest,
	TestATimeoutOutsideLeavesTheKeyToTheHandler,
	TestABodyThatWasReadOutsideIsComparedOrRefused,
	TestAnswersThatAreHeldBackAtOnceDoNotMix,
	TestCORSOutsideStandsBesideTheMarkerThatIsExposed,
	TestEveryRequestIsDoneOnceWithItsRoute,
	TestFirstAnswersAreAsWithoutTheEngineByteForByteAndReplaysLikeThem,
	TestLinesBehindTheBodyAreNoHeader,
	TestMemoryForABodyIsTakenAsItComes,
	TestMiddlewareAroundAndInside,
	TestNoTrailerAndNoEarlyHintHasTheMarker,
	TestNothingIsWrittenOnceTheHandlerHasReturned,
	TestNothingOfARequestOrItsAnswerCanBeReadInTheStore,
	TestNothingOfAnAnswerIsInTheNextOne,
	TestRedisRestartsAndForgetsItsScripts,
	TestStringsThatAConfigsFunctionsAreGivenStayAsTheyAre,
	TestTheAdapterForNetHTTPIsRefusedInABridge,
	TestTheContentTypeOfAHandlerIsReplayedWithoutTheMiddlewareThatSetItToo,
	TestTheContextOfAStreamThatItsClientLeftEndsWithItsHandler,
	TestTheServerRemovesTheFilesOfAForm,
	TestTrailersAreNotDoubled,
	TestTrailersReachTheFirstClient,
	TestWritersWorkAsWithoutTheEngineAndAreReplayedWhole,
}

// RunOnce runs the tests that do not depend on the store.
func RunOnce(t *testing.T, f Framework) {
	for _, test := range cases {
		t.Run(NameOf(test), func(t *testing.T) { test(t, f) })
	}
}

// NameOf returns the name of a function that is a test.
func NameOf(test any) string {
	_, name, _ := strings.Cut(runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name(), ".Test")
	return "Test" + name
}
