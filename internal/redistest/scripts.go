package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// otherScripts is the hook of [OtherScripts].
type otherScripts struct {
	texts, shas map[string]string
	also        Translation
}

// Translation is what a hook of OtherScripts changes beside the scripts. Fields may be nil.
type Translation struct {
	Arguments func(args []any)         // of any command
	Reply     func(text string) string // a reply that is a string
}

// OtherScripts returns a hook that sends other scripts in place of a client's, by EVAL and EVALSHA: texts has them by the text
// of those. also says what else it changes.
func OtherScripts(texts map[string]string, also Translation) redis.Hook {
	o := &otherScripts{texts, map[string]string{}, also}
	for text, other := range texts {
		o.shas[redis.NewScript(text).Hash()] = redis.NewScript(other).Hash()
	}
	return o
}

func (*otherScripts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *otherScripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		o.rewrite(cmd)
		err := next(ctx, cmd)
		o.translate(cmd)
		return err
	}
}

func (o *otherScripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			o.rewrite(cmd)
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			o.translate(cmd)
		}
		return err
	}
}

// translate changes the reply to a command.
func (o *otherScripts) translate(cmd redis.Cmder) {
	reply, ok := cmd.(interface {
		Val() any
		SetVal(any)
	})
	if !ok || o.also.Reply == nil {
		return
	}
	if text, ok := reply.Val().(string); ok {
		reply.SetVal(o.also.Reply(text))
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
	if o.also.Arguments != nil {
		o.also.Arguments(args)
	}
}
