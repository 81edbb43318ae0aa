package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// otherScripts is the hook of [OtherScripts].
type otherScripts struct {
	texts, shas map[string]string
	also        func(args []any)
}

// OtherScripts returns a hook that sends other scripts in place of a client's, by EVAL and EVALSHA: texts has them by the text
// of those. also, unless it is nil, may change the arguments of any command.
func OtherScripts(texts map[string]string, also func(args []any)) redis.Hook {
	o := &otherScripts{texts, map[string]string{}, also}
	for text, other := range texts {
		o.shas[redis.NewScript(text).Hash()] = redis.NewScript(other).Hash()
	}
	return o
}

func (*otherScripts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *otherScripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { o.rewrite(cmd); return next(ctx, cmd) }
}

func (o *otherScripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			o.rewrite(cmd)
		}
		return next(ctx, cmds)
	}
}

func (o *otherScripts) rewrite(cmd redis.Cmder) {
	args := cmd.Args()
	switch cmd.Name() {
	case "eval":
		args[1] = o.texts[args[1].(string)]
	case "evalsha":
		args[1] = o.shas[args[1].(string)]
	}
	if o.also != nil {
		o.also(args)
	}
}
