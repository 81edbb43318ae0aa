package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"
)

// compareAPI prints what changed in the API of each module since the last tag. Changes that break users are named first. They are
// no error: before v1 a version may have them, and who tags it decides. A module that is new since the last tag is left out.
func (r *release) compareAPI() error {
	// --match leaves out the tags of the modules in subdirectories: they begin with the directory.
	last, err := run(r.ctx, r.source, nil, "git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
	if err != nil {
		r.log("API: there is no earlier version to compare with")
		return nil //nolint:nilerr // no tag is no failure
	}
	old := filepath.Join(filepath.Dir(r.source), "old")
	if _, err := run(r.ctx, r.source, nil, "git", "worktree", "add", "-q", "--detach", old, last); err != nil {
		return err
	}
	earlier, err := findModules(old)
	if err != nil {
		return err
	}
	for _, m := range earlier {
		changes, err := r.changes(m, old)
		if err != nil {
			return fmt.Errorf("the API of %s: %w", m.path, err)
		}
		r.log("API of %s since %s: %s", m.path, last, changes)
	}
	return nil
}

// changes returns what changed in the API of a module since it was in the tree old.
func (r *release) changes(m *repoModule, old string) (string, error) {
	before, err := r.load(m, old)
	if err != nil {
		return "", err
	}
	after, err := r.load(m, r.source)
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	if err := apidiff.ModuleChanges(before, after).Text(&text); err != nil || text.Len() == 0 {
		return "no change", err
	}
	return "\n" + text.String(), nil
}

// load returns the packages of a module in a tree that users may import: no commands, and nothing below internal. Types that do
// not compile are an error, because they would look like changes of the API.
func (r *release) load(m *repoModule, tree string) (*apidiff.Module, error) {
	loaded, err := packages.Load(&packages.Config{
		Context: r.ctx, Dir: filepath.Join(tree, m.dir), Env: append(os.Environ(), r.env...),
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedSyntax | packages.NeedTypesInfo,
	}, "./...")
	if err != nil {
		return nil, err
	}
	api := &apidiff.Module{Path: m.path}
	for _, p := range loaded {
		for _, failed := range p.Errors {
			err = errors.Join(err, failed)
		}
		if p.Name != "main" && !strings.Contains(p.PkgPath+"/", "/internal/") && p.Types != nil {
			api.Packages = append(api.Packages, p.Types)
		}
	}
	return api, err
}

// printCommands prints how to publish what was checked: all tags are on one commit, which has the go.mod files of the check. The
// commit is on no branch, since the go.mod files of the branch keep their replace directives. The patch stays when the program
// has ended. The tags are pushed together or not at all, so that no module requires a version of another one that is not there.
func (r *release) printCommands() error {
	patch := filepath.Join(os.TempDir(), "release-"+r.version+".patch")
	changes, err := run(r.ctx, r.source, nil, "git", "diff", "--binary", r.checked, "HEAD")
	if err != nil {
		return err
	}
	if err := os.WriteFile(patch, []byte(changes+"\n"), 0o600); err != nil { // run has cut the last line end, which git needs
		return err
	}
	r.log("\n%s can be published. These commands do it:\n", r.version)
	r.log("git switch --detach && git apply %s && git commit -qam %s", patch, r.version)
	for _, m := range r.modules {
		r.log("git tag -a %s -m %s", m.tag(r.version), m.tag(r.version))
	}
	r.log("git push --atomic origin --tags")
	return nil
}
