from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.clusters import MODEL_SERVERS, endpoints


def test_endpoints_name_the_cluster_that_reads_them_and_every_address_once() -> None:
    document = endpoints([Address("127.0.0.1", 8200), Address("127.0.0.1", 8201)], version="7")
    (assignment,) = document["resources"]
    assert document["version_info"] == "7"
    assert assignment["cluster_name"] == MODEL_SERVERS
    ports = [
        item["endpoint"]["address"]["socket_address"]["port_value"]
        for item in assignment["endpoints"][0]["lb_endpoints"]
    ]
    assert ports == [8200, 8201]


def test_no_endpoint_is_a_document_too() -> None:
    assert endpoints([], version="1")["resources"][0]["endpoints"] == [{"lb_endpoints": []}]
