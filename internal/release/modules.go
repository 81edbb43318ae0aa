package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// repoModule is a module of the repository that users fetch. publish changes its file; the other fields stay.
type repoModule struct {
	path  string // such as github.com/go-idem/idem/adapters/grpc
	dir   string // its directory below the repository; "." is the repository itself
	file  *modfile.File
	needs []string // the paths of the modules of the repository that its go.mod requires
}

// tag returns the tag of a version of the module. The tag of a module in a subdirectory begins with that directory, as the Go
// Modules Reference demands.
func (m *repoModule) tag(version string) string {
	if m.dir == "." {
		return version
	}
	return filepath.ToSlash(m.dir) + "/" + version
}

// isPublished reports whether users fetch the module in a directory: those of tests, benchmarks, examples and tools are not for
// them.
func isPublished(dir string) bool {
	first, _, _ := strings.Cut(filepath.ToSlash(dir), "/")
	return !slices.Contains([]string{"adapters_test", "bench", "examples", "internal"}, first) && !strings.HasSuffix(dir, "_test")
}

// findModules returns the modules of a repository that users fetch. Each comes after those that it needs, so that publishing them
// in this order finds every requirement in the proxy.
func findModules(tree string) ([]*repoModule, error) {
	found := map[string]*repoModule{}
	err := filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() != "go.mod" {
			return err
		}
		m, err := readModule(tree, path)
		if err == nil && isPublished(m.dir) {
			found[m.path] = m
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, m := range found {
		for _, required := range m.file.Require {
			if found[required.Mod.Path] != nil {
				m.needs = append(m.needs, required.Mod.Path)
			}
		}
	}
	return inOrder(found)
}

// readModule reads the go.mod in a path. tree is the root of the repository, to which the directory of the module is relative.
func readModule(tree, path string) (*repoModule, error) {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	file, err := modfile.Parse(path, text, nil)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Rel(tree, filepath.Dir(path))
	return &repoModule{path: file.Module.Mod.Path, dir: dir, file: file}, err
}

// inOrder returns modules so that each comes after those that it needs. Modules that could stand in either order are sorted by
// path. A pass that finds no further module means that those left need each other.
func inOrder(found map[string]*repoModule) (ordered []*repoModule, err error) {
	for len(ordered) < len(found) {
		before := len(ordered)
		for _, path := range slices.Sorted(maps.Keys(found)) {
			m := found[path]
			isReady := !slices.ContainsFunc(m.needs, func(needed string) bool { return !slices.Contains(ordered, found[needed]) })
			if isReady && !slices.Contains(ordered, m) {
				ordered = append(ordered, m)
			}
		}
		if len(ordered) == before {
			return nil, fmt.Errorf("modules of the repository need each other in a circle")
		}
	}
	return ordered, nil
}

// publishAll puts all modules into the proxy, those that others need first.
func (r *release) publishAll() (err error) {
	if r.modules, err = findModules(r.source); err != nil {
		return err
	}
	for _, m := range r.modules {
		if err := r.publish(m); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		r.log("published to the proxy: %s@%s", m.path, r.version)
	}
	return nil
}

// publish makes a module require the version of the modules that it needs, and no directory, and puts it into the proxy. In the
// repository a replace directive points each module to its neighbours. Go ignores such directives in a module that is not the
// main one, so a user would not get what they name. A directive that names anything but the directory of such a module is
// therefore an error.
func (r *release) publish(m *repoModule) error {
	for _, replaced := range m.file.Replace {
		if replaced.New.Version != "" || !r.isModule(replaced.Old.Path) {
			return fmt.Errorf("go.mod replaces %s, which no user sees: remove it", replaced.Old.Path)
		}
		// It only empties the entry of the list that this loop reads; Cleanup removes it.
		if err := m.file.DropReplace(replaced.Old.Path, replaced.Old.Version); err != nil {
			return err
		}
	}
	for _, needed := range m.needs {
		if err := m.file.AddRequire(needed, r.version); err != nil {
			return err
		}
	}
	m.file.Cleanup()
	text, err := m.file.Format()
	if err != nil {
		return err
	}
	dir := filepath.Join(r.source, m.dir)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), text, 0o600); err != nil {
		return err
	}
	// The directories that were replaced had no checksums. tidy fetches the modules from the proxy and writes theirs.
	if _, err := r.goIn(dir, "mod", "tidy"); err != nil {
		return err
	}
	if err := r.commit(m.tag(r.version)); err != nil {
		return err
	}
	return r.upload(m)
}

// commit commits what publish has changed, because a proxy makes its archives of commits. The author is given here, so that the
// check does not depend on the configuration of git. A module that needed no change gets an empty commit.
func (r *release) commit(message string) error {
	author := []string{"GIT_AUTHOR_NAME=release", "GIT_AUTHOR_EMAIL=", "GIT_COMMITTER_NAME=release", "GIT_COMMITTER_EMAIL="}
	_, err := run(r.ctx, r.source, author, "git", "commit", "-q", "--allow-empty", "-a", "-m", message)
	return err
}

// isModule reports whether users fetch a module with this path from the repository.
func (r *release) isModule(path string) bool {
	return slices.ContainsFunc(r.modules, func(m *repoModule) bool { return m.path == path })
}

// upload puts the last commit of a module into the proxy, as proxy.golang.org would: four files, in the layout of the GOPROXY
// protocol. The proxy has one version of each module. The archive has only files that users may get by the rules of package zip,
// so a file that is too large or has a bad name is found here.
func (r *release) upload(m *repoModule) error {
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return err
	}
	versions := filepath.Join(r.proxy, escaped, "@v")
	if err := os.MkdirAll(versions, 0o750); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(r.source, m.dir, "go.mod"))
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		"list": r.version + "\n", r.version + ".mod": string(text),
		r.version + ".info": fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, r.version),
	} {
		if err := os.WriteFile(filepath.Join(versions, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	archive, err := os.Create(filepath.Join(versions, r.version+".zip"))
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	subdirectory := strings.TrimPrefix(filepath.ToSlash(m.dir), ".")
	if err := zip.CreateFromVCS(archive, module.Version{Path: m.path, Version: r.version}, r.source, "HEAD", subdirectory); err != nil {
		return err
	}
	return archive.Sync() // It reports a disk that is full; the error of Close is not looked at.
}
