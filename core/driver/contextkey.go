package driver

// ContextKey is the key under which an adapter stores the context of a run in the context of its framework while the run lasts. It
// does so if the framework's context does not have the values of the run's context by itself, as *gin.Context and
// *fasthttp.RequestCtx. core.FromContext, core.ChildKey, core.Step, core.Decide and core.CancelOnDisconnect then work on the
// framework's context. For every context that belongs to a run, Value(ContextKey) is the context of the run.
//
// A function that works for many runs at once, such as the handler of a batch, has a context whose Value(ContextKey) has a
// method Runs() []context.Context, which returns the contexts of these runs. The context belongs to none of them, and all of them go
// on around it.
const ContextKey = "github.com/go-idem/idem/core.run"
