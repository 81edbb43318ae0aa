package core

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/go-idem/idem/core/driver"
)

// checkNesting is called if a run of the same record, under the engine outer, encloses the request. It returns nil if e may let
// the request pass without a claim of its own. By then e has applied its rules for keys, and its scope is that of outer. Its
// other rules have no effect inside the run, so an option that differs from outer's is an error instead of being dropped
// silently (FRM-06).
func (e *Engine) checkNesting(outer *Engine) error {
	if e == outer {
		return nil
	}
	if known, ok := e.outers.Load(outer); ok {
		return known.(nesting).err
	}
	n := nesting{}
	if fields := differences(&e.cfg, &outer.cfg); len(fields) > 0 {
		n.err = fmt.Errorf("idem: this engine is inside another one, which differs in Config.%s: its own rules cannot hold; "+
			"let the outer engine Skip the route, or remove the inner one", strings.Join(fields, ", Config."))
	}
	e.outers.Store(outer, n)
	return n.err
}

// nesting is the result of checkNesting for one outer engine.
type nesting struct{ err error }

// appliedBefore has the fields of Config that need not agree: they have taken effect before an engine stands aside, or have no
// effect inside a run.
var appliedBefore = []string{"Scope", "Secret", "PreviousSecrets", "Key", "Problems", "Hooks"}

// differences returns the names of the fields in which two configs differ, except those in appliedBefore. It works by reflection,
// so that it covers every field that is added to Config.
func differences(a, b *Config) (names []string) {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		group := x.Type().Field(i)
		if slices.Contains(appliedBefore, group.Name) {
			continue
		}
		if group.Type.Kind() != reflect.Struct {
			if !isSame(x.Field(i), y.Field(i)) {
				names = append(names, group.Name)
			}
			continue
		}
		for j := range group.Type.NumField() {
			if !isSame(x.Field(i).Field(j), y.Field(i).Field(j)) {
				names = append(names, group.Name+"."+group.Type.Field(j).Name)
			}
		}
	}
	return names
}

// isSameStore reports whether a and b are one store. Unlike ==, it does not panic for stores that cannot be compared.
func isSameStore(a, b driver.Store) bool {
	return isSame(reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem())
}

// isSame compares two addressable values of one type. Functions are the same if they are the same closure, since two closures
// of one function may have captured different values. Maps, and values behind pointers to types of other packages, are
// compared by identity.
func isSame(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func:
		return *(*unsafe.Pointer)(a.Addr().UnsafePointer()) == *(*unsafe.Pointer)(b.Addr().UnsafePointer())
	case reflect.Map:
		return a.UnsafePointer() == b.UnsafePointer()
	case reflect.Interface:
		return isSameInterface(a.Elem(), b.Elem())
	case reflect.Pointer:
		isOurs := a.Type().Elem().PkgPath() == reflect.TypeFor[Config]().PkgPath() // other types may have cycles
		return a.UnsafePointer() == b.UnsafePointer() || isOurs && !a.IsNil() && !b.IsNil() && isSame(a.Elem(), b.Elem())
	case reflect.Struct:
		for i := range a.NumField() {
			if !isSame(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice, reflect.Array:
		for i := range min(a.Len(), b.Len()) {
			if !isSame(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return a.Len() == b.Len()
	}
	return a.Equal(b)
}

// isSameInterface compares the values in two interfaces.
func isSameInterface(a, b reflect.Value) bool {
	switch {
	case !a.IsValid() || !b.IsValid():
		return a.IsValid() == b.IsValid()
	case a.Type() != b.Type():
		return false
	case a.Comparable():
		return a.Equal(b)
	case !a.CanInterface(): // in an unexported field, as b is, which cannot be copied
		return false
	}
	return isSame(addressableCopy(a), addressableCopy(b))
}

// addressableCopy returns an addressable copy of v.
func addressableCopy(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}
