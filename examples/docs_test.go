package examples_test

import (
	"encoding/json"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/consumer"
)

// pages returns the README and every page of docs, as paths from this directory.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	return append(found, "../README.md")
}

var (
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// Every relative link leads to a file of the tree, and its anchor to a heading of that file.
func TestEveryRelativeLinkOfTheDocumentationResolves(t *testing.T) {
	more := []string{"../CHANGELOG.md", "../llms.txt", "../CONTRIBUTING.md", "../SECURITY.md", "orders/README.md"}
	for _, page := range append(pages(t), more...) {
		for _, link := range linkTarget.FindAllStringSubmatch(readFile(t, page), -1) {
			path, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			_, err := os.Stat(target)
			if assert.NoError(t, err, "%s links to %s", page, link[1]) && anchor != "" {
				assert.Contains(t, anchors(t, target), anchor, "%s links to %s", page, link[1])
			}
		}
	}
}

// anchors returns the names that GitHub gives to the headings of a page.
func anchors(t *testing.T, page string) (names []string) {
	t.Helper()
	for _, line := range heading.FindAllStringSubmatch(readFile(t, page), -1) {
		kept := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(line[1]), "")
		names = append(names, strings.ReplaceAll(kept, " ", "-"))
	}
	return names
}

var (
	goBlock     = regexp.MustCompile("(?s)```go\n(.*?)```")
	commandPath = regexp.MustCompile(`go (?:run|test) (\./[\w/]+)`)
)

// The directories of the go commands exist.
func TestEveryCommandOfTheDocumentationNamesADirectory(t *testing.T) {
	for _, page := range pages(t) {
		for _, command := range commandPath.FindAllStringSubmatch(readFile(t, page), -1) {
			assert.DirExists(t, filepath.Join("..", command[1]), "%s: %s", page, command[0])
		}
	}
}

// Every Go block of the documentation compiles: a program as it stands, and statements in a function.
func TestEveryGoBlockOfTheDocumentationCompiles(t *testing.T) {
	for _, page := range pages(t) {
		if filepath.Base(page) == "start.md" { // examples/start is a module that has all of its programs, and runs them
			continue
		}
		for i, block := range goBlock.FindAllStringSubmatch(readFile(t, page), -1) {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(page), i+1), func(t *testing.T) {
				if strings.HasPrefix(block[1], "package ") {
					formatted, err := format.Source([]byte(block[1]))
					require.NoError(t, err)
					assert.Equal(t, string(formatted), block[1], "gofmt")
					compile(t, block[1])
					return
				}
				compile(t, snippet(block[1], ""))
			})
		}
	}
}

// Every option of the engine is explained in the README or a page of docs that people read, not only in tables of the tests.
func TestEveryOptionIsExplained(t *testing.T) {
	text := ""
	for _, page := range []string{"../README.md", "../docs/guide.md", "../docs/messages.md", "../docs/stores.md"} {
		text += readFile(t, page)
	}
	for _, group := range reflect.VisibleFields(reflect.TypeFor[core.Config]()) {
		if group.Type.Kind() != reflect.Struct {
			assert.Regexp(t, `\b`+group.Name+`\b`, text)
			continue
		}
		for _, option := range reflect.VisibleFields(group.Type) {
			assert.Contains(t, text, "`"+group.Name+"."+option.Name)
		}
	}
	for _, option := range reflect.VisibleFields(reflect.TypeFor[consumer.Config]()) {
		assert.Contains(t, readFile(t, "../docs/messages.md"), "| `"+option.Name+"` |")
	}
}

// imports are the packages that the blocks use, by the name that they use.
var imports = map[string]string{
	"bytes": "bytes", "context": "context", "http": "net/http", "log": "log", "time": "time", "errors": "errors", "fmt": "fmt", "atomic": "sync/atomic", "slog": "log/slog",
	"gin": "github.com/gin-gonic/gin", "echo": "github.com/labstack/echo/v4", "fiber": "github.com/gofiber/fiber/v2",
	"dynamodb": "github.com/aws/aws-sdk-go-v2/service/dynamodb",
	"redis":    "github.com/redis/go-redis/v9", "pgx": "github.com/jackc/pgx/v5", "pgxpool": "github.com/jackc/pgx/v5/pgxpool",
	"core": "github.com/go-idem/idem/core", "expvar": "expvar", "idempotency": "github.com/gofiber/fiber/v2/middleware/idempotency",
	"connect": "connectrpc.com/connect", "grpc": "google.golang.org/grpc", "metadata": "google.golang.org/grpc/metadata",
	"driver":     "github.com/go-idem/idem/core/driver",
	"inspect":    "github.com/go-idem/idem/core/inspect",
	"operator":   "github.com/go-idem/idem/core/operator",
	"consumer":   "github.com/go-idem/idem/core/consumer",
	"memstore":   "github.com/go-idem/idem/core/memstore",
	"movestore":  "github.com/go-idem/idem/core/movestore",
	"slogidem":   "github.com/go-idem/idem/observe/slogidem",
	"metrics":    "github.com/go-idem/idem/core/metrics",
	"pgstore":    "github.com/go-idem/idem/core/pgstore",
	"redisstore": "github.com/go-idem/idem/core/redisstore", "sqlitestore": "github.com/go-idem/idem/core/sqlitestore",
	"dynamostore": "github.com/go-idem/idem/core/dynamostore",
}

// adapters are the packages named idem, by a function that only this one has.
var adapters = map[string]string{
	"idem.HTTP": "http", "idem.Gin": "gin", "idem.Echo": "echo", "idem.Fiber": "fiber", "idem.Transport": "client", "idem.Watermill": "watermill",
	"idem.UnaryServerInterceptor": "grpc", "UnaryInterceptor()": "grpc", "idem.Interceptor": "connect",
}

// known are the names that the blocks take for granted, with their declarations. A later declaration may use an earlier name.
var known = [][2]string{
	{"ctx", "var ctx context.Context"}, {"engine", "var engine *core.Engine"}, {"addr", "var addr string"},
	{"ops", "var ops *operator.Operator"}, {"task", "var task core.Task"}, {"seen", "var seen driver.Record"}, {"by", "var by operator.By"},
	{"movestore", "var from, to movestore.Backend"}, {"cfg", "var cfg core.Config"}, {"audit", "var audit func(context.Context, operator.Act) error"},
	{"operatorOf", "func operatorOf(*http.Request) string { return \"\" }"},
	{"authenticate", "func authenticate(http.Handler) http.Handler { return nil }"},
	{"messages", "var messages *consumer.Consumer"}, {"logger", "var logger *slog.Logger"}, {"upload", "var upload http.Handler"},
	{"withDone", "var withDone func(context.Context) (context.Context, *atomic.Pointer[core.Event])"},
	{"logDone", "var logDone func(*atomic.Pointer[core.Event])"},
	{"authenticateCall", "var authenticateCall grpc.UnaryServerInterceptor"},
	{"authenticateConnect", "var authenticateConnect connect.Interceptor"}, {"payments", "var payments any"},
	{"paymentsconnect", "var paymentsconnect interface{ NewPaymentsHandler(any, connect.HandlerOption) (string, http.Handler) }"},
	{"authenticateStream", "var authenticateStream grpc.StreamServerInterceptor"}, {"key", "var key string"},
	{"router", "var router *gin.Engine"}, {"e", "var e *echo.Echo"}, {"app", "var app *fiber.App"}, {"mux", "var mux *http.ServeMux"},
	{"store.InTx", "var store *sqlitestore.Store"}, {"pool", "var pool *pgxpool.Pool"}, {"userOf", "func userOf(context.Context) string { return \"\" }"},
	{"auth", "var auth interface{ Principal(context.Context) string }"},
	{"dynamo", "var dynamo *dynamodb.Client"}, {"client", "var client *redis.Client"}, {"sentinels", "var sentinels []string"}, {"nodes", "var nodes []string"},
	{"storage", "var storage fiber.Storage"}, {"makePayment", "func makePayment(http.ResponseWriter, *http.Request) {}"},
	{"homeOf", "var homeOf func(*http.Request) string; var here string; var regions map[string]http.Handler"},
	{"checkBySetNX", "func checkBySetNX(http.Handler) http.Handler { return nil }"},
	{"anyonce", "var anyonce interface{ Handler(http.Handler) http.Handler }"},
	{"table", "var table interface { Find(context.Context, string) (struct { Status string; Result []byte }, error) }"},
	{"Receipt", "type Receipt struct{}"}, {"charge", "var charge func(context.Context) (Receipt, error)"},
	{"provider", "var provider interface{ Charge(ctx context.Context, body []byte, key string) (Receipt, error) }"},
	{"mailer", "var mailer interface{ Send(context.Context, Receipt) error }"},
	{"msg", "var msg struct { ID string; Body []byte }"},
	{"broker", "var broker interface { Ack(any); PutAside(any, error); Redeliver(any, time.Duration) }"},
	{"bill", "var bill message.HandlerFunc"}, {"subscriber", "var subscriber message.Subscriber"}, {"publisher", "var publisher message.Publisher"},
}

// handlers are the types of pay and refund, by adapter.
var handlers = map[string]string{
	"http": "http.HandlerFunc", "gin": "gin.HandlerFunc", "echo": "echo.HandlerFunc", "fiber": "fiber.Handler",
}

// snippet returns a file with the statements of a block in a function, and what they take for granted. Without an adapter the
// block tells which one it uses.
func snippet(block, adapter string) string {
	for function, name := range adapters {
		if adapter == "" && strings.Contains(block, function) {
			adapter = name
		}
	}
	if adapter == "" && strings.Contains(block, "idem.Status") { // each adapter has one
		adapter = "http"
	}
	declared := ""
	for _, name := range slices.Backward(known) {
		if regexp.MustCompile(`\b` + name[0] + `\b`).MatchString(declared + block) {
			declared += name[1] + "\n"
		}
	}
	if adapter == "watermill" {
		declared = strings.ReplaceAll(declared, "*gin.Engine", "*message.Router")
	}
	if handler := handlers[adapter]; handler != "" {
		declared += "var pay, refund " + handler + "\n"
	}
	body := declared + "func _() {\n" + block + "\n}\n"
	var header strings.Builder
	header.WriteString("package snippet\n")
	for name, path := range imports {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(body) {
			fmt.Fprintf(&header, "import %s %q\n", name, path)
		}
	}
	if adapter != "" {
		fmt.Fprintf(&header, "import idem %q\n", "github.com/go-idem/idem/adapters/"+adapter)
	}
	if strings.Contains(body, "message.") {
		header.WriteString("import message \"github.com/ThreeDotsLabs/watermill/message\"\n")
	}
	return header.String() + body
}

// compile compiles a file in the module that has what it imports. Statements may declare what they do
// not use; a program may not.
func compile(t *testing.T, source string) {
	t.Helper()
	module := ".."
	for needed, nested := range map[string]string{
		"/fiber/v2/middleware/idempotency\"": "migrate", "/idem/adapters/watermill\"": "../adapters/watermill", "/idem/core/pgstore\"": "../core/pgstore",
		"/idem/core/sqlitestore\"": "../core/sqlitestore", "/idem/core/dynamostore\"": "../core/dynamostore",
		`"google.golang.org/grpc`: "../adapters/grpc", `"connectrpc.com/connect`: "../adapters/connect",
	} {
		if strings.Contains(source, needed) {
			module = nested
		}
	}
	if user := os.Getenv("SNIPPETS_MODULE"); user != "" { // a module that has fetched a release
		module = user
	}
	module, err := filepath.Abs(module)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "snippet.go"), []byte(source), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(module, "snippet", "snippet.go"): filepath.Join(dir, "snippet.go"),
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-gcflags=-e", "-o", os.DevNull, "./snippet")
	build.Dir = module
	out, err := build.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	isProgram := strings.HasPrefix(source, "package main")
	lines = slices.DeleteFunc(lines, func(line string) bool {
		isUnused := strings.HasSuffix(line, "not used") || strings.Contains(line, "declared and not used")
		return line == "" || strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "go: downloading ") || isUnused && !isProgram
	})
	if len(lines) > 0 || err != nil && len(out) == 0 {
		t.Errorf("%s\n%s", strings.Join(lines, "\n"), source)
	}
}
