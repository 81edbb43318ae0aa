package core_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/go-idem/idem/"

// dependencies returns what each package of the library needs besides the standard library. Packages of this module
// come without their prefix.
func dependencies(t *testing.T) map[string][]string {
	t.Helper()
	list := exec.Command("go", "list", "-f", "{{.ImportPath}}{{range .Deps}} {{.}}{{end}}", "./core/...", "./adapters/...")
	list.Dir = ".."
	out, err := list.Output()
	require.NoError(t, err, "%v", err)
	found := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		paths := strings.Fields(strings.ReplaceAll(line, module, "/"))
		isStandard := func(path string) bool {
			first, _, _ := strings.Cut(path, "/")
			return !strings.HasPrefix(path, "/") && !strings.Contains(first, ".")
		}
		name := strings.TrimPrefix(paths[0], "/")
		found[name] = slices.DeleteFunc(paths[1:], isStandard)
	}
	require.Contains(t, found, "core")
	require.Contains(t, found, "adapters/gin")
	return found
}

// What a user of one package must not pay for.
func TestNobodyPaysForWhatTheyDidNotImport(t *testing.T) {
	own := map[string][]string{
		"core/driver": nil, "core": {"/core/driver"}, "core/capture": {"/core", "/core/driver"}, "core/metrics": {"/core", "/core/driver"},
		"core/consumer": {"/core", "/core/driver"}, "core/operator": {"/core", "/core/driver"},
		"core/inspect":  {"/core", "/core/driver", "/core/operator", "/core/metrics"},
		"core/memstore": {"/core/driver"}, "core/movestore": {"/core/driver"}, "core/storetest": {"/core/driver"},
		"core/seal": {"/core/driver"}, "core/blobs": {"/core/driver"}, "core/blobs/blobstest": {"/core/driver"},
		"adapters/http":  {"/core", "/core/driver", "/core/capture"},
		"adapters/proxy": {"/core", "/core/driver", "/core/capture", "/adapters/http"},
	}
	may := map[string]string{
		"github.com/gin-gonic/gin":   "adapters/gin",
		"github.com/labstack/echo":   "adapters/echo",
		"github.com/gofiber/fiber":   "adapters/fiber",
		"github.com/valyala":         "adapters/fiber adapters/internal/fiberadapter adapters/echo", // fasttemplate
		"github.com/redis/go-redis":  "core/redisstore",
		"github.com/klauspost":       "core/compress adapters/fiber adapters/internal/fiberadapter", // fasthttp
		"github.com/minio":           "",
		"modernc.org":                "",
		"github.com/aws":             "",
		"github.com/stretchr":        "",
		"github.com/alicebob":        "",
		"github.com/go-idem/idem/in": "",
	}
	for name, deps := range dependencies(t) {
		if want, ok := own[name]; ok {
			assert.ElementsMatch(t, want, slices.DeleteFunc(slices.Clone(deps), isInternal), name)
		}
		for _, dep := range deps {
			for foreign, owners := range may {
				if strings.HasPrefix(dep, foreign) {
					assert.Contains(t, strings.Fields(owners), name, "%s needs %s", name, dep)
				}
			}
		}
	}
}

// isInternal: core's own internal packages are a part of it.
func isInternal(path string) bool { return strings.HasPrefix(path, "/core/internal/") }

// The internal packages are mechanisms: none knows the engine, or what a store is.
func TestInternalPackagesKnowNothingOfTheEngine(t *testing.T) {
	found := dependencies(t)
	assert.Contains(t, found, "core/internal/canonical")
	for name, deps := range found {
		if isInternal("/" + name) {
			assert.Empty(t, slices.DeleteFunc(deps, isInternal), name)
		}
	}
}

// What an implementation needs is in driver: whoever writes a store reads that, and not what applications use.
func TestWhatImplementsDriverNeedsNothingElseOfCore(t *testing.T) {
	found := dependencies(t)
	for _, name := range []string{"core/memstore", "core/movestore", "core/redisstore", "core/storetest", "core/seal", "core/compress", "core/blobs", "core/blobs/blobstest"} {
		require.Contains(t, found, name)
		assert.Contains(t, found[name], "/core/driver", name)
		assert.NotContains(t, found[name], "/core", name)
	}
}

// A user has to read all of it.
func TestCoreExportsAtMostFiftyNames(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var names []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			names = append(names, exported(decl)...)
		}
	}
	assert.LessOrEqual(t, len(names), 50, "%s", names)
	assert.Contains(t, names, "Engine.Do")
}

// exported returns the exported names that decl declares: identifiers, and methods of exported types.
func exported(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		names = append(names, receiver(d)+d.Name.Name)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		of, method, ok := strings.Cut(name, ".")
		return !ast.IsExported(of) || ok && !ast.IsExported(method)
	})
}

// receiver is "T." for a method of T, "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	return of.(*ast.Ident).Name + "."
}
