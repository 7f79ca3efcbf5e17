package bucket

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-ini/ini"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// s3 is a bucket that is spoken to as Amazon S3 is.
type s3 struct {
	core   minio.Core
	bucket string
	creds  *credentials.Credentials
}

// openS3 opens a bucket with the credentials that Amazon's tools would use: of the environment, of the shared files,
// or of the machine. Without any, requests are anonymous.
func openS3(_ context.Context, at location) (store, error) {
	profile := cmp.Or(at.query.Get("profile"), os.Getenv("AWS_PROFILE"), "default")
	shared := sharedConfig(profile)
	endpoint, err := at.endpoint(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), shared["endpoint_url"],
		"https://s3.amazonaws.com")
	if err != nil {
		return nil, err
	}
	providers := []credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{Profile: profile},
		&credentials.FileAWSCredentials{Filename: configFile(), Profile: configSection(profile)},
	}
	if !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		providers = append(providers, &credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}})
	}
	s := &s3{bucket: at.bucket, creds: credentials.NewChainCredentials(providers)}
	region := cmp.Or(at.query.Get("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), shared["region"])
	return s, s.connect(endpoint.Host, &minio.Options{Creds: s.creds, Secure: endpoint.Scheme == "https", Region: region,
		Transport: transport()})
}

func (s *s3) connect(host string, o *minio.Options) error {
	o.MaxRetries = 1 // attempt repeats, and tells
	core, err := minio.NewCore(host, o)
	if err == nil {
		s.core = *core
	}
	return err
}

// connections are kept open for each server.
const connections = 128

// transport has more connections, and larger buffers, than http.DefaultTransport.
func transport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = connections, connections
	t.ReadBufferSize, t.WriteBufferSize = 256<<10, 256<<10
	t.DisableCompression, t.ForceAttemptHTTP2 = true, false
	t.TLSNextProto = nil
	return t
}

// explain gives an error of the server its kind.
func (s *s3) explain(err error) error {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return err
	}
	text := strings.TrimSpace(answer.Code + ": " + answer.Message)
	kind := error(nil)
	switch status := answer.StatusCode; {
	case slices.Contains([]string{"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"},
		answer.Code):
		kind = errExpired
	case status == http.StatusNotFound && answer.Code == "NoSuchBucket":
		return fmt.Errorf("%w: there is no bucket %q", fs.ErrNotExist, s.bucket)
	case status == http.StatusNotFound:
		return fs.ErrNotExist
	case status == http.StatusPreconditionFailed, status == http.StatusConflict && answer.Code != "OperationAborted",
		status == http.StatusNotModified:
		return errReplaced
	case status == http.StatusUnauthorized, status == http.StatusForbidden && answer.Code != "RequestTimeTooSkewed":
		kind = fs.ErrPermission
	case status == http.StatusNotImplemented:
		kind = errors.ErrUnsupported
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500, status == 0,
		slices.Contains([]string{"RequestTimeout", "BadDigest", "InvalidDigest", "IncompleteBody", "SlowDown"}, answer.Code):
		return fmt.Errorf("%d %s", status, text)
	default:
		kind = errRefused
	}
	return fmt.Errorf("%w: %s", kind, text)
}

func (s *s3) renew() { s.creds.Expire() }

func (s *s3) stat(ctx context.Context, key string) (object, error) {
	o, err := s.core.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{})
	return object{key, o.Size, o.ETag, o.LastModified}, s.explain(err)
}

func (s *s3) list(ctx context.Context, prefix string, most int) (all []object, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a listing that is left early
	for o := range s.core.Client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix, MaxKeys: most}) {
		if o.Err != nil {
			return nil, s.explain(o.Err)
		}
		if o.Key == prefix {
			continue // what some tools make to show a folder
		}
		if all = append(all, object{o.Key, o.Size, o.ETag, o.LastModified}); len(all) == most {
			break
		}
	}
	return all, nil
}

func (s *s3) read(ctx context.Context, key, version string, off, bytes int64) (io.ReadCloser, error) {
	var o minio.GetObjectOptions
	err := o.SetRange(off, off+bytes-1)
	if err == nil && version != "" {
		err = o.SetMatchETag(version)
	}
	if err != nil {
		return nil, err
	}
	body, _, _, err := s.core.GetObject(ctx, s.bucket, key, o)
	if err != nil {
		return nil, s.explain(err)
	}
	return body, nil
}

// sumOfBody is the checksum by which a server refuses what has arrived damaged.
func sumOfBody(body *io.SectionReader) (string, error) {
	sum := md5.New()
	if _, err := io.Copy(sum, io.NewSectionReader(body, 0, body.Size())); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(sum.Sum(nil)), nil
}

func (s *s3) write(ctx context.Context, key string, body *io.SectionReader, c condition) (string, error) {
	sum, err := sumOfBody(body)
	if err != nil {
		return "", err
	}
	o := minio.PutObjectOptions{DisableContentSha256: true}
	if c.none {
		o.SetMatchETagExcept("*")
	} else if c.version != "" {
		o.SetMatchETag(c.version)
	}
	done, err := s.core.PutObject(ctx, s.bucket, key, body, body.Size(), sum, "", o)
	return done.ETag, s.explain(err)
}

func (s *s3) remove(ctx context.Context, key string) error {
	return s.explain(s.core.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{}))
}

func (s *s3) begin(ctx context.Context, key string) (string, error) {
	upload, err := s.core.NewMultipartUpload(ctx, s.bucket, key, minio.PutObjectOptions{})
	return upload, s.explain(err)
}

func (s *s3) part(ctx context.Context, key, upload string, number int, body *io.SectionReader) (string, error) {
	sum, err := sumOfBody(body)
	if err != nil {
		return "", err
	}
	part, err := s.core.PutObjectPart(ctx, s.bucket, key, upload, number+1, body, body.Size(),
		minio.PutObjectPartOptions{Md5Base64: sum, DisableContentSha256: true})
	return part.ETag, s.explain(err)
}

func (s *s3) complete(ctx context.Context, key, upload string, tags []string, _ func()) error {
	parts := make([]minio.CompletePart, len(tags))
	for i, tag := range tags {
		parts[i] = minio.CompletePart{PartNumber: i + 1, ETag: tag}
	}
	_, err := s.core.CompleteMultipartUpload(ctx, s.bucket, key, upload, parts, minio.PutObjectOptions{})
	return s.explain(err)
}

func (s *s3) abort(ctx context.Context, key, upload string) error {
	err := s.explain(s.core.AbortMultipartUpload(ctx, s.bucket, key, upload))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *s3) uploads(ctx context.Context, prefix string) (all []unfinished, err error) {
	key, upload := "", ""
	for {
		r, err := s.core.ListMultipartUploads(ctx, s.bucket, prefix, key, upload, "", 1000)
		if err != nil {
			if err = s.explain(err); errors.Is(err, errors.ErrUnsupported) {
				err = nil
			}
			return all, err
		}
		for _, u := range r.Uploads {
			all = append(all, unfinished{u.Key, u.UploadID})
		}
		if !r.IsTruncated {
			return all, nil
		}
		key, upload = r.NextKeyMarker, r.NextUploadIDMarker
	}
}

// configFile is the shared file of Amazon's tools that has regions and endpoints, and may have credentials.
func configFile() string {
	home, _ := os.UserHomeDir()
	return cmp.Or(os.Getenv("AWS_CONFIG_FILE"), filepath.Join(home, ".aws", "config"))
}

func configSection(profile string) string {
	if profile == "default" {
		return profile
	}
	return "profile " + profile
}

// sharedConfig is what that file says of a profile; nothing if it cannot be read.
func sharedConfig(profile string) map[string]string {
	file, err := ini.Load(configFile())
	if err != nil {
		return nil
	}
	return file.Section(configSection(profile)).KeysHash()
}
