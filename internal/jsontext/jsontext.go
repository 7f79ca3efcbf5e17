// Package jsontext reads JSON that may be damaged, with errors in words.
package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// Decode reads text as json.Unmarshal does.
func Decode(text []byte, into any) error { return Explain(text, json.Unmarshal(text, into)) }

// Explain says in words what an error of encoding/json about text means, and where. Other errors stay as they are.
func Explain(text []byte, err error) error {
	place := func(offset int64) string {
		before := text[:min(offset, int64(len(text)))]
		column := fmt.Sprintf("column %d", len(before)-1-bytes.LastIndexByte(before, '\n'))
		return fmt.Sprintf("line %d, %s", 1+bytes.Count(before, []byte("\n")), column)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = &json.SyntaxError{Offset: int64(len(text))}
	}
	var syntax *json.SyntaxError
	var value *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: this is not JSON", place(syntax.Offset))
	case errors.As(err, &value) && value.Field == "":
		return fmt.Errorf("found %.40s (want %s)", value.Value, want(value.Type))
	case errors.As(err, &value):
		return fmt.Errorf("%s: %s: found %.40s (want %s)", place(value.Offset), value.Field, value.Value,
			want(value.Type))
	}
	return err
}

// want says which JSON a variable of a type is read from.
func want(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}
