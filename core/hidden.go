package core

import (
	"context"

	"github.com/go-idem/idem/core/internal/hidden"
)

// init offers functions to other packages of this module that applications do not see.
func init() {
	hidden.Status = func(ctx context.Context, engine, request any) any {
		return engine.(*Engine).status(ctx, request.(Request))
	}
	hidden.StepResult = func(engine any, record [32]byte, step string, stored []byte) ([]byte, error) {
		return engine.(*Engine).stepResult(record, step, stored)
	}
}
