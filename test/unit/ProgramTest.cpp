//===- ProgramTest.cpp - reading the compiled program's table ----------------------===//

#include "runtime/core/Program.h"
#include "runtime/core/Error.h"
#include "runtime/core/RegexCheck.h"
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

using namespace mpc;
using nlohmann::json;

namespace {

void noKernel(int64_t, int64_t, void *const *) {}
const MpcKernel kKernels[] = {noKernel, noKernel};
const unsigned char kData[256] = {};

json good() {
  return json::parse(
      R"({"abi": 6, "model_name": "m", "precision": "fp16", "loss": "cross-entropy", "optimizer": "adam", "target": "cpu",
    "cpu": "x86-64", "loss_scale_mode": "dynamic", "batch": 4, "classes": 10, "batch_axis": {"x": 0, "labels": 0}, "output_samples": {"y": [1, 2]}, "index_limit": {"ids": 7},
    "notes": ["a note"], "regions": {"states": 4096, "inputs": 4096, "arena": 8192, "outputs": 64},
    "tensors": [{"name": "w", "role": "parameter", "type": "f32", "shape": [4, 8], "buffer": ["states", 0], "initial": [64, 128], "initial_type": "f32"},
                {"name": "x", "role": "input", "type": "f32", "shape": [4, 8], "buffer": ["inputs", 0]},
                {"name": "", "role": "loss", "type": "f32", "shape": [], "buffer": ["outputs", 0]}],
    "entries": {"gradients": {"arguments": [0, 1], "results": [2], "commands": [
      {"kind": "kernel", "node": "relu", "function": 1, "extent": 4, "grain": 2, "buffers": [["arena", 0], ["arena", 64]]},
      {"kind": "matmul", "node": "fc", "lhs": {"buffer": ["inputs", 0], "type": "f32", "shape": [4, 8]},
       "rhs": {"buffer": ["states", 0], "type": "f32", "shape": [4, 8], "is_weight": true}, "bias": null,
       "result": {"buffer": ["arena", 128], "type": "f32", "shape": [4, 4]}, "transpose_rhs": true},
      {"kind": "conv", "node": "c", "lhs": {"buffer": ["arena", 0], "type": "f16", "shape": [1, 2, 5, 5]},
       "rhs": {"buffer": ["states", 1024], "type": "f16", "shape": [3, 2, 3, 3], "is_weight": true},
       "bias": {"buffer": ["states", 2048], "type": "f16", "shape": [3]}, "result": {"buffer": ["arena", 1024], "type": "f16", "shape": [1, 3, 5, 5]},
       "strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1]}]}},
    "export": {"template": [0, 200], "holes": [{"offset": 8, "bytes": 128, "type": "f32", "tensor": 0}]}})");
}

Program load(const std::string &text) {
  MpcProgram raw = {MPC_PROGRAM_ABI, 2, text.data(), text.size(), kKernels, kData, sizeof kData};
  return Program::load(raw);
}

std::string whyRefused(const std::string &text) {
  try {
    load(text);
  } catch (const Error &e) {
    return e.what();
  }
  return "";
}

TEST(Program, Loads) {
  Program p = load(good().dump());
  EXPECT_EQ("m", p.model_name);
  EXPECT_EQ(4, p.batch);
  EXPECT_EQ(-100, p.ignore_index);
  EXPECT_EQ(7, p.index_limit.at("ids"));
  EXPECT_EQ(1, p.output_samples.at("y").axis);
  EXPECT_EQ(2, p.output_samples.at("y").blocks);
  ASSERT_EQ(3u, p.tensors.size());
  EXPECT_EQ(Role::parameter, p.tensors[0].role);
  EXPECT_EQ(128u, p.tensors[0].bytes());
  EXPECT_EQ(64u, p.tensors[0].initial.offset);
  EXPECT_EQ(1, p.find(Role::input, "x"));
  EXPECT_EQ(1, p.find(Role::input));
  EXPECT_EQ(-1, p.find(Role::input, "y"));
  EXPECT_EQ(std::vector<uint32_t>{2}, p.all(Role::loss));
  const Entry &entry = p.entries.at("gradients");
  ASSERT_EQ(3u, entry.commands.size());
  EXPECT_EQ(CommandKind::matmul, entry.commands[1].kind);
  EXPECT_TRUE(entry.commands[1].rhs.is_weight);
  EXPECT_FALSE(entry.commands[1].bias.present);
  EXPECT_TRUE(entry.commands[2].bias.present);
  EXPECT_EQ(1u, p.export_holes.size());
}

TEST(Program, OtherVersionIsNamed) {
  std::string text = good().dump();
  MpcProgram raw = {MPC_PROGRAM_ABI + 1, 2, text.data(), text.size(), kKernels, kData,
                    sizeof kData};
  EXPECT_THROW(Program::load(raw), Error);
}

// Each change makes one thing wrong; the message names where.
TEST(Program, RefusesWhatIsInconsistent) {
  struct Change {
    const char *pointer, *value, *message;
  };
  const Change changes[] = {
      {"/abi", "1", "abi"},
      {"/tensors/0/role", "\"weight\"", "role"},
      {"/tensors/0/type", "\"f8\"", "element type"},
      {"/tensors/0/shape", "[4, -8]", "out of range"},
      {"/tensors/0/shape", "[4000000000, 4000000000, 4000000000]", "too many elements"},
      {"/tensors/0/buffer", "[\"states\", 4032]", "outside the region"},
      {"/tensors/0/buffer", "[\"states\", 32]", "multiple of 64"},
      {"/tensors/0/buffer", "[\"heap\", 0]", "no region"},
      {"/tensors/0/buffer", "[\"states\", 18446744073709551615]", "out of range"},
      {"/tensors/0/initial", "[200, 128]", "outside"},
      {"/tensors/0/initial", "[0, 64]", "initial value"},
      {"/tensors", "7", "list"},
      {"/entries/gradients/arguments", "[3]", "out of range"},
      {"/entries/gradients/results", "[-1]", "out of range"},
      {"/entries/gradients/commands/0/kind", "\"pool\"", "no command"},
      {"/entries/gradients/commands/0/function", "2", "out of range"},
      {"/entries/gradients/commands/0/grain", "0", "out of range"},
      {"/entries/gradients/commands/0/extent", "-1", "out of range"},
      {"/entries/gradients/commands/0/buffers", "[[\"arena\", 8256]]", "outside the region"},
      {"/entries/gradients/commands/1/rhs/shape", "[4, 7]", "do not fit"},
      {"/entries/gradients/commands/1/result/type", "\"f16\"", "result type"},
      {"/entries/gradients/commands/1/lhs/type", "\"i32\"", "i32"},
      {"/entries/gradients/commands/1/lhs", "null", "missing"},
      {"/entries/gradients/commands/1/lhs", "{}", "missing"},
      {"/entries/gradients/commands/2/strides", "[0, 1]", "out of range"},
      {"/entries/gradients/commands/2/strides", "[1]", "wrong length"},
      {"/entries/gradients/commands/2/pads", "[1, 1, 1, 0]", "output extent"},
      {"/entries/gradients/commands/2/groups", "0", "groups"},
      {"/entries/gradients/commands/2/groups", "2", "groups"},
      {"/entries/gradients/commands/2/bias/shape", "[4]", "bias"},
      {"/entries/gradients/commands/2/channels_last", "true", "fit"},
      {"/export/holes/0/bytes", "4096", "outside"},
      {"/export/holes/0/tensor", "3", "out of range"},
      {"/export/template", "[100, 200]", "outside"},
      {"/batch", "-1", "negative"},
      {"/batch", "\"four\"", "integer"},
      {"/output_samples/y", "[1]", "blocks"},
      {"/output_samples/y", "[0, 0]", "blocks"},
      {"/regions/arena", "1e3", "integer"},
      {"/regions/arena", "9223372036854775807", "out of range"},
      {"/notes", "[1]", "string"},
  };
  for (const Change &c : changes) {
    json table = good();
    table[json::json_pointer(c.pointer)] = json::parse(c.value);
    std::string why = whyRefused(table.dump());
    EXPECT_NE(std::string::npos, why.find(c.message))
        << c.pointer << " = " << c.value << ": " << why;
  }
}

// Commands of a GPU program name its functions; nothing of the CPU's is asked for.
json goodForGpu() {
  json table = good();
  table["target"] = "cuda";
  table["images"] = json::parse(
      R"([{"kind": "cubin", "architecture": 80, "data": [0, 100]}, {"kind": "ptx", "architecture": 70, "data": [128, 64]}])");
  for (json &command : table["entries"]["gradients"]["commands"]) {
    for (const char *key : {"function", "extent", "grain"})
      command.erase(key);
    command["functions"] =
        json::parse(R"([{"symbol": "k", "grid": 7, "block": 256}, {"symbol": "k$combine"}])");
    command["functions"][1].update({{"grid", 1}, {"block", 32}, {"after_library", true}});
    if (command["kind"] == "kernel")
      continue;
    command["buffers"] = json::array(); // of its operands
    for (const char *operand : {"lhs", "rhs", "bias", "result"})
      if (command.contains(operand) && command[operand].is_object())
        command["buffers"].push_back(command[operand]["buffer"]);
  }
  return table;
}

TEST(Program, LoadsForAGpu) {
  std::string text = goodForGpu().dump();
  MpcProgram raw = {MPC_PROGRAM_ABI, 0, text.data(), text.size(), nullptr, kData, sizeof kData};
  Program p = Program::load(raw);
  ASSERT_EQ(2u, p.images.size());
  EXPECT_EQ(ProgramImage::Kind::ptx, p.images[1].kind);
  EXPECT_EQ(70u, p.images[1].architecture);
  EXPECT_EQ(128u, p.images[1].data.offset);
  for (const Command &command : p.entries.at("gradients").commands) {
    ASSERT_EQ(2u, command.functions.size());
    EXPECT_EQ("k$combine", command.functions[1].symbol);
    EXPECT_EQ(7u, command.functions[0].grid);
    EXPECT_EQ(32u, command.functions[1].block);
    EXPECT_FALSE(command.functions[0].after_library);
    EXPECT_TRUE(command.functions[1].after_library);
    EXPECT_GE(command.buffers.size(), 2u);
  }
}

// What a group's members differ in.
TEST(Program, LoadsGroups) {
  json table = goodForGpu();
  table["entries"]["gradients"]["commands"][0]["members"] = json::parse(
      R"([{"buffers": [["arena", 0]], "words": [0, 5]}, {"buffers": [["arena", 64]], "words": [1, 7]}])");
  std::string text = table.dump();
  MpcProgram raw = {MPC_PROGRAM_ABI, 0, text.data(), text.size(), nullptr, kData, sizeof kData};
  const Command command = Program::load(raw).entries.at("gradients").commands[0];
  ASSERT_EQ(2u, command.members.size());
  EXPECT_EQ(64u, command.members[1].buffers[0].offset);
  EXPECT_EQ((std::vector<uint32_t>{1, 7}), command.members[1].words);
  EXPECT_EQ(16u, command.members[1].bytes());
}

/// Attention over 2 samples of 5 queries and 3 keys with 2 heads, and its gradient, beside a mask
/// of the keys and dropout of the weights.
json attentionForGpu() {
  json table = goodForGpu();
  json commands = json::array();
  auto command = [&](const char *kind, const std::vector<std::string> &operands,
                     const std::vector<std::string> &results) {
    const std::map<std::string, std::pair<const char *, std::vector<int>>> tensors = {
        {"query", {"f16", {2, 5, 2, 4}}}, {"key", {"f16", {2, 3, 2, 4}}},
        {"value", {"f16", {2, 3, 2, 6}}}, {"output", {"f16", {2, 5, 2, 6}}},
        {"rows", {"f32", {2, 2, 5}}},     {"statistics", {"f32", {2, 2, 2, 5}}},
        {"mask", {"f32", {2, 3}}},        {"state", {"i64", {2}}}};
    json made{{"kind", kind}, {"node", "scores"}, {"scale", 0.5}, {"bias_dimensions", {0, 3}}};
    made["dropout_ratio"] = 0.25;
    made["functions"] = json::parse(R"([{"symbol": "a", "grid": 7, "block": 128}])");
    for (const auto &[list, names] : {std::pair("operands", operands), {"results", results}})
      for (const std::string &name : names) {
        const auto &[type, shape] = tensors.at(name);
        json buffer{"arena", 512 * made["buffers"].size()};
        made["buffers"].push_back(buffer);
        made[list].push_back({{"buffer", buffer}, {"type", type}, {"shape", shape}});
      }
    commands.push_back(made);
  };
  command("attention", {"query", "key", "value", "mask", "state", "state"},
          {"output", "rows", "statistics"});
  command(
      "attention_grad",
      {"output", "query", "key", "value", "output", "rows", "statistics", "mask", "state", "state"},
      {"query", "key", "value"});
  table["entries"]["gradients"]["commands"] = commands;
  return table;
}

TEST(Program, LoadsAttention) {
  EXPECT_EQ("", whyRefused(attentionForGpu().dump()));
  struct Change {
    const char *pointer, *value, *message;
  };
  const Change changes[] = {
      {"/0/operands/1/shape", "[2, 3, 2, 5]", "[2, 3, 2, 5] of f16 instead of [2, 3, 2, 4]"},
      {"/0/operands/2/type", "\"bf16\"", "of bf16 instead of"},
      {"/0/operands/0/type", "\"i64\"", "attention of i64"},
      {"/0/operands/0/shape", "[2, 5, 8]", "rank 4"},
      {"/0/operands/2", "{}", "missing"},
      {"/0/operands", "[]", "missing"},
      {"/0/results/1/type", "\"f16\"", "of f16 instead of"},
      {"/0/results/2/shape", "[2, 2, 5]", "instead of [2, 2, 2, 5]"},
      {"/0/results/0/shape", "[2, 5, 2, 4]", "instead of [2, 5, 2, 6]"},
      {"/0/bias_dimensions", "[0]", "instead of [2]"},
      {"/0/bias_dimensions", "[3, 0]", "wrong dimensions"},
      {"/0/bias_dimensions", "[0, 4]", "wrong dimensions"},
      {"/0/scale", "\"half\"", "a number expected"},
      {"/0/buffers/1", "[\"arena\", 0]", "the buffers are not those"},
      {"/1/results/2/shape", "[2, 3, 2, 4]", "instead of [2, 3, 2, 6]"},
      {"/1/operands/5/shape", "[2, 5, 2]", "instead of [2, 2, 5]"},
      {"/1/operands/6/type", "\"f16\"", "of f16 instead of"},
      {"/0/operands/4/shape", "[4]", "[4] of i64 instead of [2] of i64"},
      {"/0/operands/4/type", "\"f32\"", "[2] of f32 instead of [2] of i64"},
      {"/0/dropout_ratio", "1", "dropout with a ratio of 1"},
      {"/0/dropout_ratio", "-0.5", "dropout with a ratio of -0.5"},
      {"/0/dropout_ratio", "0", "missing"},
      {"/0/safe", "1", "true or false"},
  };
  for (const Change &c : changes) {
    json table = attentionForGpu();
    table[json::json_pointer(std::string("/entries/gradients/commands") + c.pointer)] =
        json::parse(c.value);
    std::string why = whyRefused(table.dump());
    EXPECT_NE(std::string::npos, why.find(c.message))
        << c.pointer << " = " << c.value << ": " << why;
  }
  json onCpu = good();
  onCpu["entries"]["gradients"]["commands"] = attentionForGpu()["entries"]["gradients"]["commands"];
  EXPECT_NE(std::string::npos, whyRefused(onCpu.dump()).find("only a GPU"));
}

TEST(Program, RefusesWhatAGpuCannotRun) {
  struct Change {
    const char *pointer, *value, *message;
  };
  const Change changes[] = {
      {"/target", "\"cpu\"", "images of GPU kernels"},
      {"/images", "[]", "without images"},
      {"/images/0/kind", "\"elf\"", "kind of image"},
      {"/images/0/data", "[0, 0]", "empty image"},
      {"/tensors/2/buffer", "[\"inputs\", 0]", "states and outputs"},
      {"/entries/gradients/commands/1/buffers", "[[\"inputs\", 0], [\"states\", 0]]", "operands"},
      {"/entries/gradients/commands/1/buffers/1", "[\"states\", 64]", "operands"},
      {"/images/0/data", "[200, 100]", "outside"},
      {"/images/1/architecture", "-1", "out of range"},
      {"/entries/gradients/commands/0/functions", "[]", "without GPU functions"},
      {"/entries/gradients/commands/1/functions", "[]", "without GPU functions"},
      {"/entries/gradients/commands/0/functions/0/grid", "0", "out of range"},
      {"/entries/gradients/commands/0/functions/0/block", "2048", "out of range"},
      {"/entries/gradients/commands/2/buffers", "[[\"arena\", 8256]]", "outside the region"},
      {"/entries/gradients/commands/0/members", "[{\"buffers\": [[\"arena\", 9999999]]}]",
       "outside the region"},
      {"/entries/gradients/commands/0/members", "[{\"words\": [1]}]", "another form"},
      {"/entries/gradients/commands/0/members", "[{\"words\": [0, -1]}]", "out of range"},
      {"/entries/gradients/commands/0/members", "[{\"words\": [0, 1]}, {\"words\": [0, 1, 2, 3]}]",
       "another form"},
      {"/entries/gradients/commands/1/members", "[{\"words\": [0, 1]}]", "only kernels"},
  };
  for (const Change &c : changes) {
    json table = goodForGpu();
    table[json::json_pointer(c.pointer)] = json::parse(c.value);
    std::string why = whyRefused(table.dump());
    EXPECT_NE(std::string::npos, why.find(c.message))
        << c.pointer << " = " << c.value << ": " << why;
  }
}

// Whatever the bytes are, the answer is a program or an Error.
TEST(Program, DamagedTextNeverCrashes) {
  std::string text = good().dump();
  for (size_t length = 0; length < text.size(); length += 7)
    EXPECT_NE("", whyRefused(text.substr(0, length)));
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    for (int n = 0; n < 3; ++n)
      damaged[random() % damaged.size()] = char(random() % 256);
    whyRefused(damaged);
  }
  for (const char *other : {"", "null", "[]", "{}", "7", "{\"abi\": null}", "\xff\xfe"})
    EXPECT_NE("", whyRefused(other));
  EXPECT_NE("", whyRefused(std::string(100000, '[')));
}

// Every value replaced by one of another kind.
TEST(Program, ValuesOfAnotherKindNeverCrash) {
  json flat = good().flatten();
  for (const auto &[pointer, value] : flat.items())
    for (const char *other :
         {"null", "-1", "1e300", "\"text\"", "[]", "{}", "true", "[[]]", "99999999999999999999"}) {
      json changed = flat.unflatten();
      changed[json::json_pointer(pointer)] = json::parse(other);
      whyRefused(changed.dump());
    }
}

} // namespace

// Repetitions that would take the C library gigabytes are seen wherever a set of characters ends.
TEST(RegexProblem, SetsEndWhereTheCLibraryEndsThem) {
  std::string large = "(((a{1,255}){1,255}){1,255})";
  for (const char *set :
       {"", "[ab]", "[]]", "[^]a]", "[[:alpha:]]", "[[:alpha:][]", "[^[:digit:]x]", "[[=a=]]",
        "[[.].]]", "[[.-.]-]", "[a[]", "[:a]", "[\\]"}) {
    EXPECT_EQ(mpc::regexProblem(set), "") << set;
    EXPECT_EQ(mpc::regexProblem(set + large),
              "its repetitions, written out, are longer than 10000 characters")
        << set;
  }
  EXPECT_EQ(mpc::regexProblem("[[:alpha:](((a{1,255}){1,255}){1,255}]"), ""); // a set as a whole
  for (const char *bad : {"[", "[^", "[a", "[]", "[[:alpha:]", "[[:", "[[:alpha]", "[[:none:]]"})
    EXPECT_NE(mpc::regexProblem(bad), "") << bad;
}
