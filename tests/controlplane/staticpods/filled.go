package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/util/hash"
	"k8s.io/utils/dump"
)

// filledPods lists pods with fields of all types, set at random, each with the hash of its dump: what
// no validation would accept together, and more than one would write by hand. Of the given number of
// pods, those are listed that set a field which no pod before them sets, or all of them.
func filledPods(seed uint64, count int, all, dumps bool) (string, error) {
	var out strings.Builder
	known := map[string]bool{}
	for i := range count {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		filler := filler{random, 3 + random.IntN(8), map[string]bool{}}
		pod := filler.value(reflect.TypeFor[v1.Pod](), 0).(map[string]any)
		before := len(known)
		maps.Copy(known, filler.set)
		if len(known) == before && !all {
			continue
		}
		pod["apiVersion"], pod["kind"] = "v1", "Pod"
		text, err := json.Marshal(pod)
		if err != nil {
			return "", err
		}
		decoded, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), text)
		if err != nil {
			return "", fmt.Errorf("%s: %w", text, err)
		}
		hasher := fnv.New128a()
		hash.DeepHashObject(hasher, decoded.(*core.Pod))
		line := hex.EncodeToString(hasher.Sum(nil))
		if dumps {
			line = dump.ForHash(decoded)
		}
		fmt.Fprintf(&out, "%s %s\n", line, text)
	}
	return out.String(), nil
}

type filler struct {
	*rand.Rand
	// sparsity is how many fields there are for each that is set, below the pod's own.
	sparsity int
	// set has all fields of all types that are not null.
	set map[string]bool
}

// Quantities in all forms: cached text, decimal and binary, rounded, zero, beyond 64 bits.
var quantities = []any{
	"0", "1", "100m", "1500m", "1000m", "0.5", "1.5", "2.000", "250u", "1n", "0.1m", "1e3", "12e6", "1.5e-4",
	"64Mi", "100Mi", "1Gi", "1.5Gi", "0.3Gi", "1Ki", "5Ti", "1Pi", "7Ei", "9Ei", "3k", "10M", "1G", "2T", "3P", "4E",
	"12345678901234567890", "-1", "-1.5Gi", "+3", "007", "00", "0.0", ".5", "1.", "1.0Gi", "0Gi", "1E", "1e-10",
	"123456789.123456789123", 3, 2000000000, 0.25,
}

var resources = []string{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"}

// Keys of fields that count for the defaults of other ones.
var frequent = map[string]bool{"resources": true, "limits": true, "requests": true}

// Values by the names of fields with defaults that depend on them.
var values = map[string][]string{
	"Image":         {"busybox", "a/b:latest", "a/b:1", "a/b@sha256:" + strings.Repeat("ab", 32), "r.example:5000/x", "UPPER/case:1"},
	"Reference":     {"busybox", "a/b:latest", "a/b:1", ""},
	"RestartPolicy": {"Always", "Never", "OnFailure"},
}

func (f filler) value(kind reflect.Type, depth int) any {
	switch kind {
	case reflect.TypeFor[resource.Quantity]():
		return quantities[f.IntN(len(quantities))]
	case reflect.TypeFor[metav1.Time]():
		return nil
	case reflect.TypeFor[intstr.IntOrString]():
		return []any{0, 8080, "", "http", "80"}[f.IntN(5)]
	}
	switch kind.Kind() {
	case reflect.Pointer:
		return f.value(kind.Elem(), depth)
	case reflect.Slice:
		items := make([]any, f.IntN(3))
		for i := range items {
			items[i] = f.value(kind.Elem(), depth+1)
		}
		return items
	case reflect.Map:
		entries := map[string]any{}
		for range f.IntN(4) {
			key := f.text()
			if kind.Elem() == reflect.TypeFor[resource.Quantity]() {
				key = resources[f.IntN(len(resources))]
			}
			entries[key] = f.value(kind.Elem(), depth+1)
		}
		return entries
	case reflect.Struct:
		object := map[string]any{}
		f.fields(kind, depth, object)
		return object
	case reflect.String:
		return f.text()
	case reflect.Bool:
		return f.IntN(2) == 0
	default:
		return []int{0, 1, 30, -1, 420, 65535}[f.IntN(6)]
	}
}

// fields sets some of the fields.
func (f filler) fields(kind reflect.Type, depth int, object map[string]any) {
	for i := range kind.NumField() {
		field := kind.Field(i)
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case key == "":
			f.fields(field.Type, depth, object)
		case field.Type == reflect.TypeFor[[]metav1.ManagedFieldsEntry]():
		case depth < 2 || frequent[key] && f.IntN(2) == 0 || f.IntN(f.sparsity) == 0:
			object[key] = f.value(field.Type, depth+1)
			if choices := values[field.Name]; choices != nil && isText(field.Type) {
				object[key] = choices[f.IntN(len(choices))]
			}
			if object[key] != nil {
				f.set[fmt.Sprintf("%v.%s", kind, field.Name)] = true
			}
		case f.IntN(12) == 0:
			object[key] = nil
		}
	}
}

func isText(kind reflect.Type) bool {
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	return kind.Kind() == reflect.String
}

func (f filler) text() string {
	return []string{"", "a", "b c", "é<&>", "x: {y}", "\n", "HTTP"}[f.IntN(7)]
}
