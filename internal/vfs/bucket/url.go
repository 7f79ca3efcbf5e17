package bucket

import (
	"cmp"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// location is what a URL names. The key is "" for the bucket itself.
type location struct {
	scheme, bucket, key string
	query               url.Values // options of the bucket, such as endpoint
}

// urlPattern takes a URL whose slashes filepath.Clean may have merged. A query may stand after the bucket or anywhere
// in the key; it ends at the next slash that does not belong to the address of an endpoint.
var (
	urlPattern   = regexp.MustCompile(`^(s3|file|gs|az|hdfs|https?):/+(.*)$`)
	queryPattern = regexp.MustCompile(`\?((?:https?:/+|[^/])*)`)

	addressPattern = regexp.MustCompile(`^(https?):/*(.*)$`)
	addressSlashes = regexp.MustCompile(`(=https?:)/+`)
)

// options are what a query may say, by scheme.
var options = map[string][]string{
	"s3": {"endpoint", "region", "profile"},
	"az": {"endpoint", "account"},
	"gs": {"endpoint"},
}

// parse reads a URL. ok is false for a path of the local file system; for file:// it is too, and key is that path.
func parse(path string) (at location, ok bool, err error) {
	match := urlPattern.FindStringSubmatch(path)
	if match == nil {
		return location{key: path}, false, nil
	}
	at.scheme = match[1]
	rest := match[2]
	if at.scheme == "file" {
		return location{key: "/" + rest}, false, nil
	}
	if openers[at.scheme] == nil {
		return at, true, fmt.Errorf("URLs that begin with %s: are not known: want s3://, az://, gs:// or file://",
			at.scheme)
	}
	if query := queryPattern.FindStringSubmatch(rest); query != nil {
		rest = strings.Replace(rest, query[0], "", 1)
		if at.query, err = url.ParseQuery(query[1]); err != nil {
			return at, true, fmt.Errorf("the query of the URL: %w", err)
		}
		if address := at.query.Get("endpoint"); address != "" { // one spelling
			at.query.Set("endpoint", addressPattern.ReplaceAllString(address, "$1:$2"))
		}
		for name := range at.query {
			if !slices.Contains(options[at.scheme], name) {
				return at, true, fmt.Errorf("the query of the URL has %q; a URL of %s can have %q", name, at.scheme,
					options[at.scheme])
			}
		}
	}
	at.bucket, at.key, _ = strings.Cut(rest, "/")
	if at.key = strings.TrimPrefix(filepath.Clean("/"+at.key), "/"); at.bucket == "" {
		err = fmt.Errorf("the URL has no bucket: want %s://BUCKET/PATH", at.scheme)
	}
	return at, true, err
}

// withQueryFirst is a URL with single slashes, whose query is that of its bucket.
func withQueryFirst(path string) string {
	path = addressSlashes.ReplaceAllString(filepath.Clean(path), "$1")
	match := urlPattern.FindStringSubmatch(path)
	query := queryPattern.FindString(path)
	if match == nil || query == "" {
		return path
	}
	bucket, key, inFolder := strings.Cut(strings.Replace(match[2], query, "", 1), "/")
	if path = match[1] + ":/" + bucket + query; inFolder {
		path += "/" + key
	}
	return path
}

// endpoint is the server that a query names, or else another one, as a URL with its scheme.
func (at location) endpoint(others ...string) (*url.URL, error) {
	text := cmp.Or(slices.Insert(others, 0, at.query.Get("endpoint"))...)
	if text == "" {
		return nil, nil
	}
	if match := addressPattern.FindStringSubmatch(text); match != nil {
		text = match[1] + "://" + match[2]
	} else {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("endpoint %q: want http://HOST:PORT or https://HOST", text)
	}
	return u, nil
}

// isScratch tells whether a key is of a file that stays on the local disk: one that is not committed, a scratch file,
// or one of a folder that is renamed when it is complete.
func isScratch(key string) bool {
	before := ""
	for name := range strings.SplitSeq(key, "/") {
		if strings.HasSuffix(name, folder.Suffix) || strings.HasSuffix(name, folder.ReplacementSuffix) ||
			strings.HasSuffix(name, ".job") && name != ".job" || before == ".job" && name == "scratch" {
			return true
		}
		if before == ".job" && name == "tasks" { // whose files are shared by machines
			break
		}
		before = name
	}
	return strings.HasSuffix(key, vfs.TempSuffix)
}
