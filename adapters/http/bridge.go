package idem

import (
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"strings"
)

// bridges are the functions of frameworks that call net/http middleware around their own handlers, in which the middleware does
// not see what becomes of a request:
//   - In Echo's, a handler that returns an error has written nothing yet. The middleware sees an empty response with the status
//     200, and Echo's error handler comes too late for the client, too.
//   - Fiber's calls the handlers when the middleware has returned.
var bridges = []struct{ source, function, adapter string }{
	{"labstack/echo/v4", "WrapMiddleware", "adapters/echo"},
	{"labstack/echo/v5", "WrapMiddleware", "adapters/echov5"},
	{"gofiber/fiber/v2", "HTTPMiddleware", "adapters/fiber"},
	{"gofiber/fiber/v3", "HTTPMiddleware", "adapters/fiberv3"},
}

// reporter is a writer that says what was sent to it, such as that of Gin.
type reporter interface {
	Written() bool
	Status() int
}

// notePast returns a function that returns the status of a response that was sent to w since notePast was called; 0 if none
// was, or if w does not say. What calls net/http middleware around the handlers of Gin leaves them w, past the writer of the
// middleware.
func notePast(w http.ResponseWriter) (status func() int) {
	r, ok := w.(reporter)
	if !ok || r.Written() {
		return func() int { return 0 }
	}
	return func() int {
		if !r.Written() {
			return 0
		}
		return r.Status()
	}
}

// refusingBridge returns a handler that refuses all requests and says why, if one of bridges has made next. Otherwise it returns
// nil. The compiler may name an inlined function after its caller, so the source file tells the framework.
func refusingBridge(next http.Handler) http.Handler {
	f, ok := next.(http.HandlerFunc)
	if !ok {
		return nil
	}
	made := runtime.FuncForPC(reflect.ValueOf(f).Pointer())
	file, _ := made.FileLine(made.Entry())
	for _, b := range bridges {
		if strings.Contains(file, b.source) && strings.Contains(made.Name(), b.function) {
			text := fmt.Sprintf("idem: %s does not show the responses of handlers to the adapter for net/http, so nothing was run. "+
				"%s has an adapter of its own: github.com/go-idem/idem/%s", b.function, b.source, b.adapter)
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, text, http.StatusInternalServerError)
			})
		}
	}
	return nil
}
