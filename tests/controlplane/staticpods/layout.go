package main

import (
	"fmt"
	"reflect"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/apis/core"
)

// Types whose content is not that of their JSON: the reader of the layout knows them.
var special = map[reflect.Type]bool{
	reflect.TypeFor[resource.Quantity]():  true,
	reflect.TypeFor[metav1.Time]():        true,
	reflect.TypeFor[metav1.FieldsV1]():    true,
	reflect.TypeFor[intstr.IntOrString](): true,
}

// Fields of the internal version that the conversion fills from other places, by their JSON keys there.
var moved = map[string]string{
	"core.PodSecurityContext.HostNetwork":           "hostNetwork",
	"core.PodSecurityContext.HostPID":               "hostPID",
	"core.PodSecurityContext.HostIPC":               "hostIPC",
	"core.PodSecurityContext.ShareProcessNamespace": "shareProcessNamespace",
	"core.PodSecurityContext.HostUsers":             "hostUsers",
}

// Fields of v1 that the conversion moves to other places.
var movedFrom = map[string]bool{
	"v1.PodSpec.HostNetwork":              true,
	"v1.PodSpec.HostPID":                  true,
	"v1.PodSpec.HostIPC":                  true,
	"v1.PodSpec.ShareProcessNamespace":    true,
	"v1.PodSpec.HostUsers":                true,
	"v1.PodSpec.DeprecatedServiceAccount": true,
	"v1.PodStatus.PodIP":                  true,
}

// layout describes the internal version of a pod, which is what a kubelet hashes, one named type a
// line: its kind and name, and for a struct its fields with their types and the JSON keys of v1. The
// key of a field without one of its own (inline) is ".".
func layout() (string, error) {
	types := layouts{named: map[string]reflect.Type{}, text: map[string]string{}}
	if err := types.add(reflect.TypeFor[core.Pod](), reflect.TypeFor[v1.Pod]()); err != nil {
		return "", err
	}
	var names []string
	for name := range types.text {
		names = append(names, name)
	}
	sort.Strings(names)
	var out strings.Builder
	out.WriteString("# Written by `cargo generate static-pods` from k8s.io/kubernetes/pkg/apis/core.\n")
	for _, name := range names {
		out.WriteString(types.text[name])
	}
	return out.String(), nil
}

type layouts struct {
	named map[string]reflect.Type
	text  map[string]string
}

// add describes a type of the internal version, which is decoded as the given type of v1.
func (l layouts) add(internal, external reflect.Type) error {
	// A value that is optional in v1 only; the zero value is what is left of its absence.
	if external.Kind() == reflect.Pointer && internal.Kind() != reflect.Pointer {
		external = external.Elem()
	}
	if internal.Kind() != external.Kind() {
		return fmt.Errorf("%v is decoded as %v", internal, external)
	}
	name := internal.String()
	if internal.PkgPath() != "" {
		known, found := l.named[name]
		if found && known != internal {
			return fmt.Errorf("two types are named %s", name)
		}
		if found || special[internal] {
			return nil
		}
		l.named[name] = internal
	}
	switch internal.Kind() {
	case reflect.Pointer, reflect.Slice:
		return l.add(internal.Elem(), external.Elem())
	case reflect.Map:
		if internal.PkgPath() != "" {
			l.text[name] = fmt.Sprintf("map %s %v %v\n", name, internal.Key(), internal.Elem())
		}
		if internal.Key().Kind() != reflect.String {
			return fmt.Errorf("the keys of %v are no strings", internal)
		}
		return l.add(internal.Elem(), external.Elem())
	case reflect.Struct:
		return l.addStruct(internal, external)
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64:
		if internal.PkgPath() != "" {
			l.text[name] = fmt.Sprintf("%v %s\n", internal.Kind(), name)
		}
		return nil
	default:
		return fmt.Errorf("%v is of kind %v", internal, internal.Kind())
	}
}

func (l layouts) addStruct(internal, external reflect.Type) error {
	name := internal.String()
	var out strings.Builder
	fmt.Fprintf(&out, "struct %s\n", name)
	for i := range internal.NumField() {
		field := internal.Field(i)
		if !field.IsExported() {
			return fmt.Errorf("%s.%s is not exported", name, field.Name)
		}
		from, found := external.FieldByName(field.Name)
		key := moved[name+"."+field.Name]
		if found == (key != "") {
			return fmt.Errorf("%s.%s is decoded from nothing, or twice", name, field.Name)
		}
		if found {
			key, _, _ = strings.Cut(from.Tag.Get("json"), ",")
			if err := l.add(field.Type, from.Type); err != nil {
				return fmt.Errorf("%s.%s: %w", name, field.Name, err)
			}
		}
		if key == "" {
			key = "."
		}
		fmt.Fprintf(&out, "\t%s %v %s\n", field.Name, field.Type, key)
	}
	for i := range external.NumField() {
		field := external.Field(i)
		_, found := internal.FieldByName(field.Name)
		if from := external.String() + "." + field.Name; !found && !movedFrom[from] {
			return fmt.Errorf("%s is lost", from)
		}
	}
	l.text[name] = out.String()
	return nil
}
