package bucket

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/hopfeed/hopfeed/internal/parallel"
)

// gs is a bucket of Google Cloud Storage, which is spoken to by its JSON API. A version is a generation.
type gs struct {
	client   *http.Client
	endpoint *url.URL
	bucket   string
	// anonymous is why requests have no credentials; nil: they have some, or are for an emulator.
	anonymous error
}

// openGS opens a bucket with the credentials that Google's tools would use: of the file that
// GOOGLE_APPLICATION_CREDENTIALS names, of gcloud auth application-default login, or of the machine. Without any, and
// with STORAGE_EMULATOR_HOST, requests are anonymous.
func openGS(ctx context.Context, at location) (store, error) {
	emulator := os.Getenv("STORAGE_EMULATOR_HOST")
	if emulator != "" && !strings.Contains(emulator, "://") {
		emulator = "http://" + emulator
	}
	endpoint, err := at.endpoint(emulator, "https://storage.googleapis.com")
	if err != nil {
		return nil, err
	}
	g := &gs{client: &http.Client{Transport: transport()}, endpoint: endpoint, bucket: at.bucket}
	if emulator != "" {
		return g, nil
	}
	// The source of tokens outlives the call.
	found, err := google.FindDefaultCredentials(context.WithoutCancel(ctx),
		"https://www.googleapis.com/auth/devstorage.read_write")
	if err == nil {
		g.client.Transport = &oauth2.Transport{Source: found.TokenSource, Base: transport()}
	} else if g.anonymous = err; os.Getenv("GOOGLE_APPLICATION_CREDENTIALS") != "" {
		return nil, err
	}
	return g, nil
}

// renew has nothing to do: tokens are renewed when they expire.
func (g *gs) renew() {}

// request asks the server. The path has escaped keys, as a slash is a part of a name.
func (g *gs) request(ctx context.Context, method, path string, query url.Values, header http.Header, body io.Reader,
	size int64) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, g.endpoint.String()+path+"?"+query.Encode(), body)
	if err != nil {
		return nil, err
	}
	if header != nil {
		r.Header = header
	}
	r.ContentLength = size
	answer, err := g.client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 {
		defer answer.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
		if answer.StatusCode == http.StatusUnauthorized && g.anonymous != nil {
			return nil, fmt.Errorf("%w without credentials: %w", fs.ErrPermission, g.anonymous)
		}
		return nil, explainGS(answer.StatusCode, text)
	}
	return answer, nil
}

// explainGS gives an error of the server its kind.
func explainGS(status int, text []byte) error {
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(text, &answer)
	message := cmp.Or(answer.Error.Message, http.StatusText(status))
	return explainStatus(status, message, strings.Contains(message, "MD5"))
}

// gsObject is what the server says of an object.
type gsObject struct {
	Name       string    `json:"name"`
	Size       int64     `json:"size,string"`
	Generation string    `json:"generation"`
	Updated    time.Time `json:"updated"`
}

func (o gsObject) object() object { return object{o.Name, o.Size, o.Generation, o.Updated} }

// ask is a request whose answer is JSON.
func (g *gs) ask(ctx context.Context, method, path string, query url.Values, header http.Header, body io.Reader,
	size int64, to any) error {
	answer, err := g.request(ctx, method, path, query, header, body, size)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return json.NewDecoder(answer.Body).Decode(to)
}

func (g *gs) path(key string) string {
	path := "/storage/v1/b/" + url.PathEscape(g.bucket) + "/o"
	if key != "" {
		path += "/" + url.PathEscape(key)
	}
	return path
}

func (g *gs) stat(ctx context.Context, key string) (object, error) {
	var o gsObject
	err := g.ask(ctx, "GET", g.path(key), url.Values{}, nil, nil, 0, &o)
	return o.object(), err
}

func (g *gs) list(ctx context.Context, prefix string, most int) ([]object, error) {
	return g.listTo(ctx, prefix, "/", most)
}

// listTo is list, with prefixes up to a delimiter; "": of objects alone.
func (g *gs) listTo(ctx context.Context, prefix, delimiter string, most int) (all []object, err error) {
	query := url.Values{"prefix": {prefix}, "delimiter": {delimiter}}
	if most > 0 {
		query.Set("maxResults", strconv.Itoa(most+1)) // one may be the folder itself, or uploads
	}
	for {
		var page struct {
			Items         []gsObject `json:"items"`
			Prefixes      []string   `json:"prefixes"`
			NextPageToken string     `json:"nextPageToken"`
		}
		if err := g.ask(ctx, "GET", g.path(""), query, nil, nil, 0, &page); err != nil {
			return nil, err
		}
		for _, p := range page.Prefixes {
			if p != gsUploads {
				all = append(all, object{key: p})
			}
		}
		for _, o := range page.Items {
			if o.Name != prefix {
				all = append(all, o.object())
			}
		}
		if most > 0 && len(all) >= most {
			return all[:most], nil
		}
		if page.NextPageToken == "" {
			return all, nil
		}
		query.Set("pageToken", page.NextPageToken)
	}
}

func (g *gs) read(ctx context.Context, key, version string, off, size int64) (io.ReadCloser, error) {
	query := url.Values{"alt": {"media"}}
	if version != "" {
		query.Set("generation", version)
	}
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off+size-1)}}
	answer, err := g.request(ctx, "GET", g.path(key), query, header, nil, 0)
	if err != nil {
		if version != "" && errors.Is(err, fs.ErrNotExist) {
			err = errReplaced
		}
		return nil, err
	}
	return answer.Body, nil
}

func (g *gs) write(ctx context.Context, key string, body *io.SectionReader, c condition) (string, error) {
	sum, err := sumOfBody(body)
	if err != nil {
		return "", err
	}
	about, err := json.Marshal(map[string]string{"name": key, "md5Hash": sum})
	if err != nil {
		return "", err
	}
	query := url.Values{"uploadType": {"multipart"}}
	if c.none {
		query.Set("ifGenerationMatch", "0")
	} else if c.version != "" {
		query.Set("ifGenerationMatch", c.version)
	}
	const line = "hopfeed-part-of-a-request"
	head := fmt.Sprintf("--%s\r\nContent-Type: application/json\r\n\r\n%s\r\n--%[1]s\r\nContent-Type: "+
		"application/octet-stream\r\n\r\n", line, about)
	const tail = "\r\n--" + line + "--\r\n"
	header := http.Header{"Content-Type": {"multipart/related; boundary=" + line}}
	whole := io.MultiReader(strings.NewReader(head), body, strings.NewReader(tail))
	var o gsObject
	err = g.ask(ctx, "POST", "/upload"+g.path(""), query, header, whole, int64(len(head)+len(tail))+body.Size(), &o)
	return o.Generation, err
}

func (g *gs) remove(ctx context.Context, key string) error {
	answer, err := g.request(ctx, "DELETE", g.path(key), url.Values{}, nil, nil, 0)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// An upload in parts is objects below gsUploads/UPLOAD/, which end with the key, and are composed when all are there.
// Listings hide that folder.
const (
	gsUploads  = ".hopfeed-uploads/"
	gsComposed = 32 // objects that the server puts together at a time
)

func gsPart(upload, number, key string) string { return gsUploads + upload + "/" + number + "/" + key }

func (g *gs) begin(context.Context, string) (string, error) { return token(), nil }

func (g *gs) part(ctx context.Context, key, upload string, number int, body *io.SectionReader) (string, error) {
	name := gsPart(upload, fmt.Sprintf("%06d", number), key)
	_, err := g.write(ctx, name, body, condition{})
	return name, err
}

func (g *gs) complete(ctx context.Context, key, upload string, tags []string, moved func()) error {
	for level := 0; len(tags) > gsComposed; level++ {
		var next []string
		for first := 0; first < len(tags); first += gsComposed {
			name := gsPart(upload, fmt.Sprintf("%d-%06d", level, first), key)
			if err := g.compose(ctx, name, tags[first:min(first+gsComposed, len(tags))]); err != nil {
				return err
			}
			moved()
			next = append(next, name)
		}
		tags = next
	}
	if err := g.compose(ctx, key, tags); err != nil {
		return err
	}
	_ = g.abort(ctx, key, upload) // what is left of the parts is found by uploads
	return nil
}

type gsSource struct {
	Name string `json:"name"`
}

// compose puts objects together.
func (g *gs) compose(ctx context.Context, key string, parts []string) error {
	of := struct {
		Sources []gsSource `json:"sourceObjects"`
	}{}
	for _, part := range parts {
		of.Sources = append(of.Sources, gsSource{part})
	}
	body, err := json.Marshal(of)
	if err != nil {
		return err
	}
	return g.ask(ctx, "POST", g.path(key)+"/compose", url.Values{}, http.Header{"Content-Type": {"application/json"}},
		bytes.NewReader(body), int64(len(body)), &gsObject{})
}

func (g *gs) abort(ctx context.Context, _, upload string) error {
	parts, err := g.listTo(ctx, gsUploads+upload+"/", "", 0)
	return errors.Join(err, parallel.For(ctx, requests, int64(len(parts)), 1, func(i, _ int64) error {
		if err := g.remove(ctx, parts[i].key); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}))
}

func (g *gs) uploads(ctx context.Context, prefix string) (all []unfinished, err error) {
	parts, err := g.listTo(ctx, gsUploads, "", 0)
	for _, part := range parts {
		names := strings.SplitN(strings.TrimPrefix(part.key, gsUploads), "/", 3)
		if len(names) < 3 || !strings.HasPrefix(names[2], prefix) {
			continue
		}
		if one := (unfinished{names[2], names[0]}); !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all, err
}
