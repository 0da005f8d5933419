// Httpproxy says which proxy Go's golang.org/x/net/http/httpproxy chooses.
//
// Each line of stdin is a JSON array of HTTP_PROXY, HTTPS_PROXY, NO_PROXY and a URL, each line of stdout a JSON string:
// the proxy, or nothing for none.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"net/url"
	"os"

	"golang.org/x/net/http/httpproxy"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	answers.SetEscapeHTML(false)
	for lines.Scan() {
		var asked [4]string
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			log.Fatal(err)
		}
		target, err := url.Parse(asked[3])
		if err != nil {
			log.Fatal(err)
		}
		config := httpproxy.Config{HTTPProxy: asked[0], HTTPSProxy: asked[1], NoProxy: asked[2]}
		proxy, err := config.ProxyFunc()(target)
		if err != nil {
			log.Fatal(err)
		}
		answer := ""
		if proxy != nil {
			answer = proxy.String()
		}
		if err := answers.Encode(answer); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}
