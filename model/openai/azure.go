package openai

import (
	"net/url"
	"strings"
)

// azureHost reports whether host is one of Azure's own for models, in any of its
// clouds. A machine that somebody runs in Azure is not.
func azureHost(host string) bool {
	for _, cloud := range []string{"azure.com", "azure.us", "azure.cn"} {
		for _, service := range []string{".openai.", ".cognitiveservices.", ".ai."} {
			if strings.HasSuffix(host, service+cloud) {
				return true
			}
		}
	}
	return false
}

// undated reports whether version is of the API that is called v1, which has
// no dated versions.
func undated(version string) bool {
	return version == "" || version == "v1" || version == "preview" || version == "latest"
}

// azureURL returns the URL of the API at path below base: the address of a
// resource, of its v1 API, or of one deployment. In the dated API each deployment
// has its own URL for Chat Completions.
func azureURL(base *url.URL, version, path string) (*url.URL, func(model string) (*url.URL, bool)) {
	u := *base
	if version != "" {
		query := u.Query()
		query.Set("api-version", version)
		u.RawQuery = query.Encode()
	}
	resource, deployment, one := strings.Cut(strings.TrimRight(u.Path, "/"), "/openai/deployments/")
	switch {
	case one && path == chatPath:
		return u.JoinPath(path), nil
	case one && deployment != "":
		u.Path = resource + "/openai"
		return u.JoinPath(path), nil
	}
	resource = strings.TrimSuffix(strings.TrimSuffix(resource, "/openai/v1"), "/openai")
	if !undated(version) {
		u.Path = resource + "/openai"
		if path == responsesPath {
			return u.JoinPath(path), nil
		}
		return nil, func(model string) (*url.URL, bool) {
			if model == "." || model == ".." || strings.Contains(model, "/") {
				return nil, false
			}
			return u.JoinPath("deployments", url.PathEscape(model), path), true
		}
	}
	if resource == "" || resource != strings.TrimRight(u.Path, "/") {
		u.Path = resource + "/openai/v1"
	}
	return u.JoinPath(path), nil
}
