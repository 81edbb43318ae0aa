package core

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/go-idem/idem/core/driver"
)

// standsAside says whether e lets a request pass by, because a run of the same record goes on around it under outer. e has
// applied its rules for keys by then, and its scope is the outer one's. Its other rules would be dropped in silence, so each
// that differs is an error (FRM-06).
func (e *Engine) standsAside(outer *Engine) error {
	if e == outer {
		return nil
	}
	if known, ok := e.outers.Load(outer); ok {
		return known.(nesting).err
	}
	n := nesting{}
	if fields := differences(&e.cfg, &outer.cfg); len(fields) > 0 {
		n.err = fmt.Errorf("idem: this engine stands behind another one, which differs in Config.%s: its own rules cannot hold; "+
			"let the outer engine Skip the route, or remove the inner one", strings.Join(fields, ", Config."))
	}
	e.outers.Store(outer, n)
	return n.err
}

// nesting is what an engine has found out about another around it.
type nesting struct{ err error }

// appliedBefore are the fields of a Config that have done their part before an engine stands aside, or have none in a run.
var appliedBefore = []string{"Scope", "Secret", "PreviousSecrets", "Key", "Problems", "Hooks"}

// differences returns the names of the fields in which two configs differ, those appliedBefore excepted. A field that is new in
// Config counts without more ado.
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

// isSameStore tells whether a and b are one store. It does not panic for stores that cannot be compared, as == does.
func isSameStore(a, b driver.Store) bool {
	return isSame(reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem())
}

// isSame compares two values of one type, which are addressable. Functions are the same when they are the same closure: two that
// share their code may have captured different things. Maps, and what is behind pointers to foreign types, are compared by identity.
func isSame(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func:
		return *(*unsafe.Pointer)(a.Addr().UnsafePointer()) == *(*unsafe.Pointer)(b.Addr().UnsafePointer())
	case reflect.Map:
		return a.UnsafePointer() == b.UnsafePointer()
	case reflect.Interface:
		return isSameIn(a.Elem(), b.Elem())
	case reflect.Pointer:
		isOurs := a.Type().Elem().PkgPath() == reflect.TypeFor[Config]().PkgPath() // others may point in circles
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

// isSameIn compares what two interfaces hold.
func isSameIn(a, b reflect.Value) bool {
	switch {
	case !a.IsValid() || !b.IsValid():
		return a.IsValid() == b.IsValid()
	case a.Type() != b.Type():
		return false
	case a.Comparable():
		return a.Equal(b)
	case !a.CanInterface() || !b.CanInterface(): // behind a field that is not exported, where nothing can be copied
		return false
	}
	return isSame(copied(a), copied(b))
}

// copied returns an addressable copy of v.
func copied(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}
