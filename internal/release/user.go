package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// use does in a directory what a user does: it fetches each module by its version, builds all packages, and installs the
// commands. One module requires all of them, so versions of dependencies that do not go together are found as well.
func (r *release) use(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if _, err := r.goIn(dir, "mod", "init", "example.com/user"); err != nil {
		return err
	}
	for _, m := range r.modules {
		if _, err := r.goIn(dir, "get", m.path+"@"+r.version); err != nil {
			return err
		}
		if err := r.build(dir, m); err != nil {
			return err
		}
		r.log("fetched and built: %s@%s", m.path, r.version)
	}
	return r.readDocumentation(dir)
}

// build builds the packages of a module that users may import, and installs its commands. It discards what it builds: only errors
// of the compiler and of missing requirements matter.
func (r *release) build(dir string, m *repoModule) error {
	listed, err := r.goIn(dir, "list", "-f", "{{if .GoFiles}}{{.Name}} {{.ImportPath}}{{end}}", m.path+"/...")
	if err != nil {
		return err
	}
	for line := range strings.Lines(listed) {
		name, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case path == "" || !r.isOf(m, path) || strings.Contains(path, "/internal/"): // users cannot import it
		case name == "main" && strings.Contains(path, "/cmd/"):
			if err := r.install(dir, path); err != nil {
				return err
			}
		default:
			if _, err := r.goIn(dir, "build", "-o", os.DevNull, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// isOf reports whether the package with this path is in m and not in a module below it. A pattern such as "path/..." matches
// packages of every module that is required, whatever module they belong to.
func (r *release) isOf(m *repoModule, path string) bool {
	for _, other := range r.modules {
		isIn := path == other.path || strings.HasPrefix(path, other.path+"/")
		if isIn && len(other.path) > len(m.path) {
			return false
		}
	}
	return true
}

// install installs a command by its version and asks it for the version. The answer must have the version: it is what a user
// reports with a problem.
func (r *release) install(dir, path string) error {
	if _, err := r.goIn(dir, "install", path+"@"+r.version); err != nil {
		return err
	}
	bin, err := r.goIn(dir, "env", "GOBIN")
	if err != nil {
		return err
	}
	told, err := run(r.ctx, dir, nil, filepath.Join(bin, filepath.Base(path)), "--version")
	if err != nil {
		return err
	}
	if !strings.Contains(told, r.version) {
		return fmt.Errorf("%s --version prints %q", path, told)
	}
	r.log("installed: %s", told)
	return nil
}

// readDocumentation builds the programs of docs/start.md and compiles the Go blocks of the documentation in the module of the
// user. The tests of the repository compile these blocks with the working tree. Here the code is that of the version, so
// documentation that shows what the version lacks is found.
func (r *release) readDocumentation(dir string) error {
	programs, err := filepath.Glob(filepath.Join(r.source, "examples", "start", "*", "main.go"))
	if err != nil {
		return err
	}
	for _, program := range programs {
		text, err := os.ReadFile(filepath.Clean(program))
		if err != nil {
			return err
		}
		name := filepath.Base(filepath.Dir(program))
		if err := os.MkdirAll(filepath.Join(dir, name), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name, "main.go"), text, 0o600); err != nil {
			return err
		}
		if _, err := r.goIn(dir, "build", "-o", os.DevNull, "./"+name); err != nil {
			return err
		}
		r.log("built: the program of docs/start.md for %s", name)
	}
	if _, err := os.Stat(filepath.Join(r.source, "examples", "docs_test.go")); err != nil {
		return nil //nolint:nilerr // a repository without documentation
	}
	env := append([]string{"SNIPPETS_MODULE=" + dir}, r.env...)
	_, err = run(r.ctx, r.source, env, "go", "test", "-count=1", "-run", "Block|TestTheREADMEShowsHowToUse", "./examples")
	if err == nil {
		r.log("compiled: the Go blocks of README.md and docs")
	}
	return err
}
