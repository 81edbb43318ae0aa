package faults_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tests returns the names of all tests and fuzz targets of the tree.
func tests(t *testing.T) []string {
	t.Helper()
	declaration := `^func (\([a-z]+ \*?[A-Za-z]+\) )?(Test|Fuzz)[A-Za-z0-9]+`
	out, err := exec.Command("grep", "-rhoE", "--include=*_test.go", declaration, "..").Output()
	require.NoError(t, err)
	suite, err := exec.Command("grep", "-rhoE", declaration, "../internal/adaptertest").Output()
	require.NoError(t, err)
	out = append(out, suite...)
	return regexp.MustCompile(`\b(Test|Fuzz)\w+`).FindAllString(string(out), -1)
}

// Every test that docs/RELIABILITY.md names exists; where a name ends in dots, one that begins so. It counts
// the wrong variants of the model as the tree has them.
func TestTheListOfPromisesNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("../docs/RELIABILITY.md")
	require.NoError(t, err)
	page, exist := string(text), tests(t)
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)(…?)`").FindAllStringSubmatch(page, -1)
	require.Greater(t, len(named), 30)
	for _, name := range named {
		found := slices.ContainsFunc(exist, func(test string) bool {
			return test == name[1] || name[2] != "" && strings.HasPrefix(test, name[1])
		})
		assert.True(t, found, "%s does not exist", name[1])
	}
	walk, err := os.ReadFile("../internal/model/walk_test.go")
	require.NoError(t, err)
	_, wrong, _ := strings.Cut(string(walk), "\nvar bugs = []bug{\n")
	wrong, _, _ = strings.Cut(wrong, "\n}\n")
	variants := strconv.Itoa(strings.Count("\n"+wrong, "\n\t{\"")) + " wrong variants"
	assert.True(t, strings.Contains(page, variants), "the tree has %s", variants)
}

// Every line of docs/faults.md names tests that exist, or says why there is none; and every test of this directory is in it.
func TestTheListOfFaultsNamesTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("../docs/faults.md")
	require.NoError(t, err)
	exist := tests(t)
	rows := regexp.MustCompile(`(?m)^\| (\d+) \|.*\|$`).FindAllString(string(page), -1)
	assert.GreaterOrEqual(t, len(rows), 64)
	for i, row := range rows {
		cells := strings.Split(row, "|")
		require.Len(t, cells, 6, row)
		assert.Equal(t, strconv.Itoa(i+1), strings.TrimSpace(cells[1]), "rows are numbered")
		names := regexp.MustCompile("`((Test|Fuzz)\\w+)").FindAllStringSubmatch(cells[4], -1)
		assert.True(t, len(names) > 0 || strings.Contains(cells[4], "none: "), "no test and no reason: %s", row)
		for _, name := range names {
			assert.Contains(t, exist, name[1])
		}
	}
	out, err := exec.Command("grep", "-hoE", `^func Test[A-Za-z0-9]+`, "body_test.go", "failover_test.go", "hostile_test.go", "network_test.go", "process_test.go", "server_test.go", "versions_test.go").Output()
	require.NoError(t, err)
	for _, line := range strings.Fields(string(out)) {
		if strings.HasPrefix(line, "Test") && line != "TestMain" {
			assert.Contains(t, string(page), line)
		}
	}
}

// declared returns the names that the Go files of the tree declare, as name, Type.member, package.name and package.Type.member,
// each with the files that do, and the directories of packages.
func declared(t *testing.T) (names map[string][]string, packages map[string]bool) {
	t.Helper()
	names, packages = map[string][]string{}, map[string]bool{}
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		path = strings.TrimPrefix(path, "../")
		packages[filepath.Dir(path)] = true
		for _, decl := range file.Decls {
			for _, name := range namesOf(decl) {
				names[name] = append(names[name], path)
				names[file.Name.Name+"."+name] = append(names[file.Name.Name+"."+name], path)
			}
		}
		return nil
	})
	require.NoError(t, err)
	return names, packages
}

// namesOf returns what decl declares; fields and methods with their type.
func namesOf(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		of := d.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		switch generic := of.(type) {
		case *ast.IndexExpr: // one type parameter
			of = generic.X
		case *ast.IndexListExpr:
			of = generic.X
		}
		return []string{of.(*ast.Ident).Name + "." + d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
				for _, member := range membersOf(s.Type) {
					names = append(names, s.Name.Name+"."+member)
				}
			}
		}
	}
	return names
}

// membersOf returns the fields of a struct, or the methods of an interface.
func membersOf(of ast.Expr) (names []string) {
	var list *ast.FieldList
	switch x := of.(type) {
	case *ast.StructType:
		list = x.Fields
	case *ast.InterfaceType:
		list = x.Methods
	default:
		return nil
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

// isThere tells whether a file or directory is in the tree.
func isThere(path string) bool {
	_, err := os.Stat(filepath.Join("..", path))
	return err == nil
}

// Whatever docs/design.md has in backticks is a file, a directory, or a name that the code declares: in the file that stands in
// parentheses behind it, if one does. And every package is in its map.
func TestTheDesignNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile("../docs/design.md")
	require.NoError(t, err)
	page := string(text)
	assert.LessOrEqual(t, strings.Count(page, "\n"), 150)
	names, packages := declared(t)
	found := regexp.MustCompile("`([^`\n]+)`(?:\\s\\(`([^`\n]+)`)?").FindAllStringSubmatch(page, -1)
	require.Greater(t, len(found), 100)
	for _, token := range found {
		name, file := token[1], token[2]
		if file != "" {
			assert.True(t, isThere(file), "%s does not exist", file)
			assert.Contains(t, names[name], file, "%s is not declared there", name)
			continue
		}
		config, field, _ := strings.Cut(name, ".") // such as Keep.Policy
		isOption := names[config+"Config."+field] != nil
		isForeign := strings.HasPrefix(name, "http.")
		assert.True(t, isThere(name) || names[name] != nil || isOption || isForeign, "%s does not exist", name)
	}
	for dir := range packages {
		isExample := strings.HasPrefix(dir, "examples/")
		assert.True(t, isExample || strings.Contains(page, "`"+dir+"`"), "%s is not in the map", dir)
	}
}
