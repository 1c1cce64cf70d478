package cbfake

import (
	"encoding/json"
	"net"
	"strconv"
)

type object = map[string]any

// config returns the cluster configuration as a node reports it, with the bucket's part once a
// bucket is selected. ports are the ports that the nodes are reported to have, two for each; nil
// means their real ports. docs.couchbase.com: "Connecting via the Bucket's configuration".
func (n *node) config(bucket bool, ports []int) []byte {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	return n.configuration(bucket, ports)
}

func (n *node) configuration(bucket bool, ports []int) []byte {
	c := n.cluster
	var nodes, ext []any
	var servers []string
	for _, other := range c.nodes {
		kv, web := port(other.kv), port(other.web)
		if ports != nil {
			kv, web = ports[2*other.number], ports[2*other.number+1]
		}
		ext = append(ext, object{"services": object{"kv": kv, "mgmt": web, "n1ql": web}, "thisNode": other == n,
			"hostname": "127.0.0.1"})
		nodes = append(nodes, object{"hostname": "127.0.0.1:" + strconv.Itoa(web), "ports": object{"direct": kv}})
		servers = append(servers, "127.0.0.1:"+strconv.Itoa(kv))
	}
	config := object{"rev": c.revision, "revEpoch": 1, "nodesExt": ext, "clusterCapabilitiesVer": []int{1, 0},
		"clusterCapabilities": object{"n1ql": []string{"enhancedPreparedStatements"}}}
	if bucket {
		owners := make([][]int, vbuckets)
		for vb := range owners {
			owners[vb] = c.nodesOf(vb)
		}
		config["name"], config["nodeLocator"], config["uuid"] = Bucket, "vbucket", "0123456789abcdef0123456789abcdef"
		config["nodes"], config["bucketCapabilitiesVer"] = nodes, ""
		config["bucketCapabilities"] = []string{"collections", "durableWrite", "cbhello", "touch", "cccp", "nodesExt",
			"xattr"}
		config["vBucketServerMap"] = object{"hashAlgorithm": "CRC", "numReplicas": c.replicas, "serverList": servers,
			"vBucketMap": owners}
	}
	text, _ := json.Marshal(config)
	return text
}

func port(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
