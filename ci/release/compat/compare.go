package main

import (
	"context"
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"
)

// change is an incompatible one.
type change struct {
	where, what string
	// protocol names what both ends must agree on, empty for a Go package; renumbered says that
	// its version changed too.
	protocol   string
	renumbered bool
}

func (c change) String() string { return c.where + ": " + c.what }

// protocols are the packages whose constants are on a bus or a wire, with those that are versions.
var protocols = map[string]struct {
	name     string
	versions []string
}{
	"internal/datasheet":       {"the data sheet", []string{"WireVersion", "BlockVersion1"}},
	"netmem/internal/protocol": {"the protocol of network memory", []string{"Number"}},
}

// compare lists the incompatible changes between the repositories in two folders.
func compare(ctx context.Context, before, after string) ([]change, error) {
	old, err := load(ctx, before)
	if err != nil {
		return nil, err
	}
	current, err := load(ctx, after)
	if err != nil {
		return nil, err
	}
	var changes []change
	for _, path := range slices.Sorted(maps.Keys(old)) {
		protocol, isProtocol := protocols[path]
		switch p := current[path]; {
		case p == nil && (isProtocol || public(path)):
			changes = append(changes, change{where: path, what: "the package is gone", protocol: protocol.name})
		case p == nil:
		case isProtocol:
			changes = append(changes, constants(path, old[path].Types, p.Types)...)
		case public(path):
			for _, c := range apidiff.Changes(old[path].Types, p.Types).Changes {
				if !c.Compatible {
					changes = append(changes, change{where: path, what: c.Message})
				}
			}
		}
	}
	return changes, nil
}

// public says whether programs of others can import the package at a path inside the module.
func public(path string) bool {
	parts := strings.Split(path, "/")
	return !slices.Contains(parts, "internal") && !slices.Contains([]string{"ci", "examples", "tools"}, parts[0])
}

// load reads the packages of a module with their types, by their paths inside it. Programs are left out.
func load(ctx context.Context, folder string) (map[string]*packages.Package, error) {
	list, err := packages.Load(&packages.Config{Context: ctx, Dir: folder, Env: append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off"),
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedModule}, "./...")
	if err != nil {
		return nil, err
	}
	loaded := map[string]*packages.Package{}
	for _, p := range list {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("%s in %s: %w", p.PkgPath, folder, p.Errors[0])
		}
		if p.Name != "main" && p.Module != nil {
			loaded[strings.TrimPrefix(strings.TrimPrefix(p.PkgPath, p.Module.Path), "/")] = p
		}
	}
	if len(loaded) == 0 {
		return nil, fmt.Errorf("%s has no packages", folder)
	}
	return loaded, nil
}

// constants lists those of a protocol that are gone or have other values.
func constants(path string, old, current *types.Package) []change {
	var found []change
	renumbered := false
	for _, name := range old.Scope().Names() {
		before, ok := old.Scope().Lookup(name).(*types.Const)
		if !ok {
			continue
		}
		after, _ := current.Scope().Lookup(name).(*types.Const)
		if after != nil && before.Val().Kind() == after.Val().Kind() && constant.Compare(before.Val(), token.EQL, after.Val()) {
			continue
		}
		what := "constant " + name + " is gone"
		if after != nil {
			what = fmt.Sprintf("constant %s is %s, and was %s", name, after.Val(), before.Val())
		}
		if slices.Contains(protocols[path].versions, name) {
			renumbered = true
			continue
		}
		found = append(found, change{where: path, what: what, protocol: protocols[path].name})
	}
	for i := range found {
		found[i].renumbered = renumbered
	}
	return found
}
