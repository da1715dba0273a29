"""Our descriptors as the official library reads them."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pointsman.sim.grpc.descriptors import compile_file
from pointsman.sim.grpc.reflection import known

TEXT = """syntax = "proto3";

package a.b;

service Talk {
  rpc Say(stream Word) returns (stream Empty);
}

message Empty {}

message Word {
  optional float weight = 1;
  oneof form {
    string text = 2;
    Empty nothing = 3;
  }
  repeated uint32 some_ids = 4;
  map<int32, double> scores = 15;
  optional bool last_one = 16;
}
"""


def test_every_kind_of_field_means_what_it_says() -> None:
    made = compile_file("x.proto", TEXT)
    file = descriptor_pb2.FileDescriptorProto.FromString(made.descriptor)
    assert (file.name, file.package, file.syntax) == ("x.proto", "a.b", "proto3")
    assert file.service[0].method[0].client_streaming and file.service[0].method[0].server_streaming
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("a.b.Word"))
    word = kind(text="t", some_ids=[1, 300], scores={-1: 0.5}, last_one=False)
    assert word.WhichOneof("form") == "text" and word.HasField("last_one") and not word.HasField("weight")
    assert word.DESCRIPTOR.fields_by_name["some_ids"].json_name == "someIds"
    assert kind.FromString(word.SerializeToString()) == word
    assert made.services == ["a.b.Talk"]
    assert {"a.b.Word", "a.b.Word.scores", "a.b.Talk.Say"} <= made.symbols


def test_the_files_that_we_serve_are_whole() -> None:
    pool = descriptor_pool.DescriptorPool()
    for file in known():
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(file.descriptor))
        for service in file.services:
            for method in pool.FindServiceByName(service).methods:
                assert method.input_type.full_name in file.symbols and method.output_type.full_name in file.symbols
    generate = pool.FindServiceByName("vllm.grpc.engine.VllmEngine").methods_by_name["Generate"]
    assert [field.number for field in generate.output_type.fields] == [1, 2]
