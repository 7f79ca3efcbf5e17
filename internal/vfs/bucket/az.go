package bucket

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// az is a container of Azure Blob Storage.
type az struct{ container *container.Client }

// openAZ opens a container with the credentials that Azure's tools would use: AZURE_STORAGE_CONNECTION_STRING, or
// AZURE_STORAGE_ACCOUNT (or the account of the URL) with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or those of the
// environment, of the machine or of az login.
func openAZ(_ context.Context, at location) (store, error) {
	o := &container.ClientOptions{}
	o.Retry = policy.RetryOptions{MaxRetries: -1} // attempt repeats, and tells
	o.Transport = &http.Client{Transport: transport()}
	a := &az{}
	var err error
	if text := os.Getenv("AZURE_STORAGE_CONNECTION_STRING"); text != "" && at.query == nil {
		a.container, err = container.NewClientFromConnectionString(text, at.bucket, o)
		return a, err
	}
	account := cmp.Or(at.query.Get("account"), os.Getenv("AZURE_STORAGE_ACCOUNT"))
	server := ""
	if account != "" {
		server = "https://" + account + ".blob.core.windows.net"
	}
	endpoint, err := at.endpoint(os.Getenv("AZURE_STORAGE_ENDPOINT"), server)
	if err != nil {
		return nil, err
	}
	if endpoint == nil {
		return nil, errors.New("there is no account: set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING, or " +
			"give az://CONTAINER/PATH?account=NAME")
	}
	url := endpoint.JoinPath(at.bucket).String()
	if key := os.Getenv("AZURE_STORAGE_KEY"); key != "" && account != "" {
		shared, err := container.NewSharedKeyCredential(account, key)
		if err != nil {
			return nil, fmt.Errorf("AZURE_STORAGE_KEY: %w", err)
		}
		a.container, err = container.NewClientWithSharedKeyCredential(url, shared, o)
		return a, err
	}
	if token := os.Getenv("AZURE_STORAGE_SAS_TOKEN"); token != "" {
		a.container, err = container.NewClientWithNoCredential(url+"?"+strings.TrimPrefix(token, "?"), o)
		return a, err
	}
	found, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	a.container, err = container.NewClient(url, found, o)
	return a, err
}

// explain gives an error of the server its kind.
func (a *az) explain(err error) error {
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) {
		return err
	}
	return explainStatus(answer.StatusCode, answer.ErrorCode, answer.ErrorCode == "Md5Mismatch")
}

// renew has nothing to do: tokens are renewed when they expire, and keys do not.
func (a *az) renew() {}

func (a *az) stat(ctx context.Context, key string) (object, error) {
	p, err := a.container.NewBlobClient(key).GetProperties(ctx, nil)
	if err != nil {
		return object{}, a.explain(err)
	}
	return object{key, *p.ContentLength, string(*p.ETag), *p.LastModified}, nil
}

func (a *az) list(ctx context.Context, prefix string, most int) (all []object, err error) {
	o := &container.ListBlobsHierarchyOptions{Prefix: &prefix}
	if n := int32(most); most > 0 {
		o.MaxResults = &n
	}
	for pages := a.container.NewListBlobsHierarchyPager("/", o); pages.More(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, a.explain(err)
		}
		for _, p := range page.Segment.BlobPrefixes {
			all = append(all, object{key: *p.Name})
		}
		for _, b := range page.Segment.BlobItems {
			if *b.Name != prefix {
				all = append(all, object{*b.Name, *b.Properties.ContentLength, string(*b.Properties.ETag),
					*b.Properties.LastModified})
			}
		}
		if most > 0 && len(all) >= most {
			return all[:most], nil
		}
	}
	return all, nil
}

func (a *az) read(ctx context.Context, key, version string, off, bytes int64) (io.ReadCloser, error) {
	o := &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: off, Count: bytes}}
	if tag := azcore.ETag(version); version != "" {
		o.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &tag}}
	}
	answer, err := a.container.NewBlobClient(key).DownloadStream(ctx, o)
	if err != nil {
		return nil, a.explain(err)
	}
	return answer.Body, nil
}

// readSeekCloser is what the SDK sends.
type readSeekCloser struct{ io.ReadSeeker }

func (readSeekCloser) Close() error { return nil }

// md5Of is the checksum by which the server refuses what has arrived damaged.
func md5Of(body *io.SectionReader) (blob.TransferValidationTypeMD5, error) {
	sum, err := sumOfBody(body)
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(sum)
}

func (a *az) write(ctx context.Context, key string, body *io.SectionReader, c condition) (string, error) {
	sum, err := md5Of(body)
	if err != nil {
		return "", err
	}
	o := &blockblob.UploadOptions{TransactionalValidation: sum}
	if c.none || c.version != "" {
		conditions := &blob.ModifiedAccessConditions{}
		if any := azcore.ETagAny; c.none {
			conditions.IfNoneMatch = &any
		} else {
			tag := azcore.ETag(c.version)
			conditions.IfMatch = &tag
		}
		o.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: conditions}
	}
	done, err := a.container.NewBlockBlobClient(key).Upload(ctx, readSeekCloser{body}, o)
	if err != nil {
		return "", a.explain(err)
	}
	return string(*done.ETag), nil
}

func (a *az) remove(ctx context.Context, key string) error {
	_, err := a.container.NewBlobClient(key).Delete(ctx, nil)
	return a.explain(err)
}

// Blocks that are not committed are no object and no upload: Azure removes them after a week, or when the blob is
// written. So the name of an upload only keeps its blocks apart from others'.

func (a *az) begin(context.Context, string) (string, error) { return token(), nil }

func blockID(upload string, number int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%06d", upload, number))
}

func (a *az) part(ctx context.Context, key, upload string, number int, body *io.SectionReader) (string, error) {
	sum, err := md5Of(body)
	if err != nil {
		return "", err
	}
	id := blockID(upload, number)
	_, err = a.container.NewBlockBlobClient(key).StageBlock(ctx, id, readSeekCloser{body},
		&blockblob.StageBlockOptions{TransactionalValidation: sum})
	return id, a.explain(err)
}

func (a *az) complete(ctx context.Context, key, _ string, tags []string, _ func()) error {
	_, err := a.container.NewBlockBlobClient(key).CommitBlockList(ctx, tags, nil)
	return a.explain(err)
}

func (a *az) abort(context.Context, string, string) error { return nil }

func (a *az) uploads(context.Context, string) ([]unfinished, error) { return nil, nil }
