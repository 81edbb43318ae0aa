package slogidem_test

import (
	"context"
	"log/slog"
	"os"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/observe/slogidem"
)

func ExampleHooks() {
	without := map[string]bool{"time": true, "took": true, "record": true} // which differ from run to run
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if without[a.Key] {
			return slog.Attr{}
		}
		return a
	}}))
	engine, err := core.New(core.Config{
		Store: memstore.New(), Scope: core.SingleTenant, Name: "payments", Hooks: slogidem.Hooks(logger, core.Hooks{}),
	})
	if err != nil {
		logger.Error(err.Error())
		return
	}
	task := core.Task{Kind: "JOB", Scope: "invoices", Key: "2026-11"}
	for range 2 {
		_, _ = engine.DoTask(context.Background(), task, func(context.Context) (*core.Response, error) {
			return &core.Response{Status: 200}, nil
		})
	}
	// Output:
	// level=INFO msg="idem: run" method=JOB engine=payments end=kept status=200 attempt=1 size=10
	// level=INFO msg="idem: replay" method=JOB engine=payments status=200 size=10
}
