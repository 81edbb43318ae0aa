package operator_test

import (
	"context"
	"fmt"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/operator"
)

// An operator looks at a key, and forgets it. The audit log has the act before it is done.
func Example() {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	task := core.Task{Kind: "JOB", Scope: "invoices", Key: "2026-11"}
	_, _ = engine.DoTask(ctx, task, func(context.Context) (*core.Response, error) { return &core.Response{Status: 200}, nil })

	ops, err := operator.New(engine, operator.Config{Audit: func(_ context.Context, act operator.Act) error {
		fmt.Println(act.Who, "wants to", act.Action, "a key that is", act.Seen.State, "because:", act.Why)
		return nil
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	seen, err := ops.Look(ctx, task)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ops.Forget(ctx, operator.By{Who: "alice", Why: "the invoices of November are sent again"}, task, seen))
	// Output:
	// alice wants to forget a key that is completed because: the invoices of November are sent again
	// <nil>
}
