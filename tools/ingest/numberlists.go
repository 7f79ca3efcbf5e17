package ingest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// numberLists reads a JSON object of numbers and lists of numbers from front to end: {"0": 1, "1": [0, 1]}. It holds
// none of them, so a file may have any size.
type numberLists struct {
	path string
	file vfs.File
	r    *bufio.Reader
	at   int64 // bytes that were read
	keys int64 // that were read
	text []byte
}

// maxNumber is the most bytes of a key, or of a number.
const maxNumber = 32

func openNumberLists(fsys vfs.FS, path string) (_ *numberLists, err error) {
	file, size, err := vfs.OpenSized(fsys, path)
	if err != nil {
		return nil, err
	}
	l := &numberLists{path: path, file: file, r: bufio.NewReaderSize(io.NewSectionReader(file, 0, size), 1<<16)}
	defer closeOnError(&err, l)
	return l, l.expect('{')
}

// eachNumberList calls do with each key of the file at path. do reads the key's numbers.
func eachNumberList(fsys vfs.FS, path string, do func(l *numberLists, key string) error) error {
	l, err := openNumberLists(fsys, path)
	if err != nil {
		return err
	}
	defer l.Close()
	for {
		key, err := l.key()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = do(l, key)
		}
		if err != nil {
			return err
		}
	}
}

// Close closes the file.
func (l *numberLists) Close() error { return l.file.Close() }

// errorf is ErrInvalid at the present place.
func (l *numberLists) errorf(format string, args ...any) error {
	return invalid(fmt.Sprintf("%s: byte %d", l.path, l.at), format, args...)
}

func (l *numberLists) readByte() (byte, error) {
	c, err := l.r.ReadByte()
	switch {
	case errors.Is(err, io.EOF):
		return 0, l.errorf("ends within the object (truncated?)")
	case err != nil:
		return 0, fmt.Errorf("%s: %w", l.path, err)
	}
	l.at++
	return c, nil
}

// next is the next byte that is no white space.
func (l *numberLists) next() (byte, error) {
	for {
		c, err := l.readByte()
		if err != nil || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c, err
		}
	}
}

func (l *numberLists) expect(want byte) error {
	c, err := l.next()
	if err == nil && c != want {
		err = l.errorf("found %q (want %q)", c, want)
	}
	return err
}

// key is the next key, or io.EOF behind the last.
func (l *numberLists) key() (string, error) {
	c, err := l.next()
	switch {
	case err != nil:
		return "", err
	case c == '}':
		return "", l.end()
	case l.keys > 0 && c != ',':
		return "", l.errorf(`found %q (want "," or "}")`, c)
	case l.keys > 0:
		c, err = l.next()
	}
	if err == nil && c != '"' {
		err = l.errorf("found %q (want a key in quotes)", c)
	}
	if err != nil {
		return "", err
	}
	l.keys++
	for l.text = l.text[:0]; len(l.text) <= maxNumber; l.text = append(l.text, c) {
		if c, err = l.readByte(); err != nil {
			return "", err
		}
		if c == '"' {
			return string(l.text), l.expect(':')
		}
	}
	return "", l.errorf("a key of more than %d bytes", maxNumber)
}

// end is io.EOF if the object is all that the file has.
func (l *numberLists) end() error {
	for {
		c, err := l.r.ReadByte()
		if err != nil {
			return err
		}
		if l.at++; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return l.errorf("found %q behind the object", c)
		}
	}
}

// numbers calls each with the numbers of the present key, a number alone or those of a list, and returns how many there
// are. It adds the place to the errors of each.
func (l *numberLists) numbers(each func(i int64, v float64) error) (count int64, err error) {
	c, err := l.next()
	if err != nil {
		return 0, err
	}
	if c != '[' {
		return 1, l.number(c, 0, each)
	}
	if c, err = l.next(); err != nil || c == ']' {
		return 0, err
	}
	for {
		if err := l.number(c, count, each); err != nil {
			return count, err
		}
		count++
		if c, err = l.next(); err != nil || c == ']' {
			return count, err
		}
		if c != ',' {
			return count, l.errorf(`found %q (want "," or "]")`, c)
		}
		if c, err = l.next(); err != nil {
			return count, err
		}
	}
}

// number reads a number that begins with c.
func (l *numberLists) number(c byte, i int64, each func(i int64, v float64) error) (err error) {
	for l.text = l.text[:0]; c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'; {
		if l.text = append(l.text, c); len(l.text) > maxNumber {
			return l.errorf("a number of more than %d bytes", maxNumber)
		}
		if c, err = l.readByte(); err != nil {
			return err
		}
	}
	if len(l.text) == 0 {
		return l.errorf("found %q (want a number)", c)
	}
	l.at--
	if err := l.r.UnreadByte(); err != nil {
		return err
	}
	v, err := strconv.ParseFloat(string(l.text), 64)
	if err != nil {
		return l.errorf("%q is no number", l.text)
	}
	if err := each(i, v); err != nil {
		return l.errorf("%w", err)
	}
	return nil
}
