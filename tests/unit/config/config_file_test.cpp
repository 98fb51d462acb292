// Configuration files: reading, refusing, writing.
#include "config/config_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "accelerate/errors.h"
#include "config/config_path.h"
#include "launch/scratch_folder.h"

namespace accelerate::config {
namespace {

using test::ScratchFolder;
using ::testing::HasSubstr;

ConfigFile read(const std::string& text) {
  return interpret_config(parse_config_text(text, "c.yaml"), "c.yaml");
}

std::string file_refusal(const std::string& text) {
  try {
    read(text);
  } catch (const ConfigError& error) {
    return error.message() + " | " + error.where() + " | " + error.hint();
  }
  return "taken";
}

std::string value_of(const ConfigFile& file, const std::string& name) {
  for (const FileValue& value : file.values) {
    if (value.setting->name == name) return value.text + "@" + std::to_string(value.line);
  }
  return "";
}

TEST(ConfigFiles, ValuesKnowTheirLine) {
  const ConfigFile file = read(
      "distributed_type: FSDP\n"
      "fsdp_config:\n"
      "  fsdp_version: 2\n"
      "  offload_params: true\n"
      "mixed_precision: 'no'\n"
      "gpu_ids: null\n");
  EXPECT_EQ(value_of(file, "fsdp_version"), "2@3");
  EXPECT_EQ(value_of(file, "fsdp_offload_params"), "true@4");
  EXPECT_EQ(value_of(file, "mixed_precision"), "no@5");
  EXPECT_EQ(value_of(file, "gpu_ids"), "");
}

TEST(ConfigFiles, NullSaysAsLittleAsAKeyThatIsNotThere) {
  EXPECT_THAT(file_refusal("distributed_type: null\n"),
              HasSubstr("a configuration file must name a distributed_type"));
  const std::string missing =
      yaml_text(complete_document(read("distributed_type: 'NO'\nfp16: true\n")));
  const std::string null = yaml_text(complete_document(
      read("distributed_type: 'NO'\nfp16: true\nmixed_precision: null\nuse_cpu: ~\n"
           "num_processes: null\nsame_network:\ncompute_environment: null\n")));
  EXPECT_EQ(null, missing);
  EXPECT_EQ(yaml_text(complete_document(read(null))), null);
}

TEST(ConfigFiles, MessagesCannotSteerATerminal) {
  EXPECT_THAT(file_refusal("distributed_type: 'NO'\n\"a\\e[2Jb\": 1\n"),
              HasSubstr("configuration files have no key a?[2Jb |"));
  EXPECT_THAT(file_refusal("distributed_type: \"\\x07\"\n"), HasSubstr("cannot be '?'"));
  const std::string long_key =
      file_refusal("distributed_type: 'NO'\n" + std::string(900, 'k') + ": 1\n");
  EXPECT_THAT(long_key, HasSubstr("no key " + std::string(200, 'k') + "... |"));
}

TEST(ConfigFiles, JsonIsReadUnderAnyName) {
  const ConfigFile file = read("{\n\t\"distributed_type\": \"NO\",\n\t\"num_processes\": 3\n}\n");
  EXPECT_EQ(value_of(file, "num_processes"), "3@3");
}

TEST(ConfigFiles, UnknownKeysAreRefusedWithLineAndNearestName) {
  EXPECT_EQ(file_refusal("distributed_type: 'NO'\nmixed_precison: bf16\n"),
            "configuration files have no key mixed_precison | c.yaml:2 | mixed_precision?");
  EXPECT_EQ(file_refusal("distributed_type: FSDP\nfsdp_config:\n  fsdp_versoin: 2\n"),
            "configuration files have no key fsdp_versoin in fsdp_config | c.yaml:3 | "
            "fsdp_version?");
  EXPECT_EQ(file_refusal("distributed_type: 'NO'\nfrobnicate: 1\n"),
            "configuration files have no key frobnicate | c.yaml:2 | accelerate config docs lists "
            "the keys");
}

TEST(ConfigFiles, WrongValuesAreRefusedWithLineAndNearestName) {
  EXPECT_EQ(
      file_refusal("distributed_type: MULTI_GPUS\n"),
      "distributed_type cannot be 'MULTI_GPUS': it must be NO, MULTI_CPU, MULTI_GPU, DEEPSPEED or "
      "FSDP (MULTI_NPU, MULTI_MLU, MULTI_SDAA, MULTI_MUSA, MULTI_XPU, MULTI_HPU, MULTI_NEURON, "
      "XLA, MEGATRON_LM, DATA_PARALLEL and MODEL_PARALLEL are not part of this build) | "
      "c.yaml:1 | MULTI_GPU?");
  EXPECT_EQ(file_refusal("distributed_type: TPU\n"), "taken");  // as XLA was called once
  EXPECT_EQ(file_refusal("distributed_type: 'NO'\nnum_processes: [1, 2]\n"),
            "num_processes holds one value | c.yaml:2 | ");
  EXPECT_EQ(file_refusal("distributed_type: 'NO'\nfsdp_config: 3\n"),
            "fsdp_config holds settings of its own, not one value | c.yaml:2 | ");
}

TEST(ConfigFiles, WhatIsNoConfigurationIsRefused) {
  EXPECT_THAT(file_refusal("distributed_type: [NO\n"), HasSubstr("the file is not valid YAML"));
  EXPECT_THAT(file_refusal("- 1\n- 2\n"), HasSubstr("the file holds no settings | c.yaml"));
  EXPECT_THAT(file_refusal(""), HasSubstr("the file holds no settings"));
  EXPECT_THAT(file_refusal("num_processes: 1\n"), HasSubstr("must name a distributed_type"));
  EXPECT_EQ(file_refusal("num_proceses: 1\n"),
            "configuration files have no key num_proceses | c.yaml:1 | num_processes?");
  EXPECT_EQ(file_refusal("fp16: true\ndistributed_tpye: 'NO'\n"),
            "configuration files have no key distributed_tpye | c.yaml:2 | distributed_type?");
  EXPECT_EQ(file_refusal("distributed_type: 'NO'\ndebug: true\ndebug: false\n"),
            "the key debug stands in the file twice | c.yaml:3 | ");
  EXPECT_THAT(file_refusal("distributed_type: !!python/object/apply:os.system ['true']\n"),
              HasSubstr("which configuration files cannot have | c.yaml:1"));
}

TEST(ConfigFiles, AliasesThatUnfoldWithoutEndAreRefused) {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    const std::string previous(1, static_cast<char>(c - 1));
    bomb += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 10; ++i) bomb += (i > 0 ? ", *" : "*") + previous;
    bomb += "]\n";
  }
  EXPECT_THAT(file_refusal(bomb), HasSubstr("more than a configuration could"));
  EXPECT_THAT(file_refusal(std::string(5000, '[')), HasSubstr("c.yaml"));
}

TEST(ConfigFiles, MissingAndEndlessFilesAreRefused) {
  EXPECT_THROW(load_config_file("/nowhere/c.yaml"), ConfigError);
  EXPECT_THROW(load_config_file("/dev/zero"), ConfigError);
  ScratchFolder folder;
  EXPECT_THROW(load_config_file(folder.write("long.yaml", std::string(2 << 20, ' '))), ConfigError);
}

TEST(ConfigFiles, SagemakerFilesAreRecognised) {
  const ConfigFile file = read(
      "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: DATA_PARALLEL\n"
      "ec2_instance_type: ml.p3.2xlarge\niam_role_name: role\nadditional_args: {a: 1}\n");
  EXPECT_TRUE(file.is_sagemaker);
  EXPECT_THAT(yaml_text(complete_document(file)), HasSubstr("region: us-east-1\n"));
}

TEST(ConfigFiles, NamesThatLookLikeTruthsAreQuotedWhenRewritten) {
  const ConfigFile file = read("distributed_type: NO\nmixed_precision: no\ngpu_ids: 0\n");
  const std::string text = yaml_text(complete_document(file));
  EXPECT_THAT(text, HasSubstr("distributed_type: 'NO'\n"));
  EXPECT_THAT(text, HasSubstr("mixed_precision: 'no'\n"));
  EXPECT_THAT(text, HasSubstr("gpu_ids: '0'\n"));
}

TEST(ConfigFiles, ChoicesCountInAnyCaseAndAreRewrittenAsTheSchemaSpellsThem) {
  const ConfigFile none = read("distributed_type: 'no'\n");
  EXPECT_EQ(value_of(none, "distributed_type"), "NO@1");
  EXPECT_EQ(value_of(none, "num_processes"), "1@1");  // not one for each GPU
  const std::string text = yaml_text(complete_document(
      read("compute_environment: local_machine\ndistributed_type: fsdp\nmixed_precision: BF16\n"
           "fsdp_config: {fsdp_sharding_strategy: full_shard}\n"
           "dynamo_config: {dynamo_backend: inductor}\n")));
  EXPECT_THAT(text, HasSubstr("compute_environment: LOCAL_MACHINE\n"));
  EXPECT_THAT(text, HasSubstr("distributed_type: FSDP\n"));
  EXPECT_THAT(text, HasSubstr("mixed_precision: bf16\n"));
  EXPECT_THAT(text, HasSubstr("fsdp_sharding_strategy: FULL_SHARD\n"));
  EXPECT_THAT(text, HasSubstr("dynamo_backend: INDUCTOR\n"));  // as Python's library writes it
  EXPECT_TRUE(read("compute_environment: amazon_sagemaker\ndistributed_type: 'no'\n"
                   "ec2_instance_type: ml.p3.2xlarge\n")
                  .is_sagemaker);
  const std::string older =
      yaml_text(complete_document(read("distributed_type: 'no'\ndynamo_backend: 'no'\n")));
  EXPECT_EQ(older.find("dynamo"), std::string::npos);
}

TEST(ConfigFiles, RetiredKeysAreReadAndLeftOutWhenRewritten) {
  const ConfigFile file = read(
      "distributed_type: MULTI_CPU\nipex_config: {ipex: true}\nmpirun_config: {mpirun_ccl: '1'}\n");
  EXPECT_EQ(value_of(file, "ipex"), "true@2");
  const std::string text = yaml_text(complete_document(file));
  EXPECT_EQ(text.find("ipex"), std::string::npos);
  EXPECT_EQ(text.find("mpirun"), std::string::npos);
}

TEST(ConfigTexts, WhatIsWrittenIsReadAgainAsItWas) {
  FileNode document = FileNode::map();
  const char* texts[] = {"",     "no",   "1",    "1.5",       "null", "~",        "a b",   " a",
                         "a: b", "a #b", "#a",   "-",         "- a",  "it's",     "\"x\"", "a\nb",
                         "\x01", "1:30", "0x1f", "1e5",       "=",    "10.0.0.1", "[a]",   "{a}",
                         "a:",   "*a",   "&a",   "!a",        "%a",   "@a",       "`a",    "é",
                         "?",    "? a",  ".inf", "2024-01-01"};
  for (size_t i = 0; i < std::size(texts); ++i) {
    document.set("key" + std::to_string(i), FileNode::string(texts[i]));
  }
  for (const std::string& text : {yaml_text(document), json_text(document)}) {
    const FileNode again = parse_config_text(text, "again.yaml");
    for (size_t i = 0; i < std::size(texts); ++i) {
      const FileNode* node = again.find("key" + std::to_string(i));
      ASSERT_NE(node, nullptr) << texts[i];
      EXPECT_EQ(node->text, texts[i]) << text;
      EXPECT_EQ(node->kind, FileNode::Kind::kScalar) << texts[i];
    }
  }
}

TEST(ConfigTexts, MapsAndListsKeepTheirShape) {
  const std::string text =
      "a:\n  b: 1\n  c:\n  - x\n  - u: 2\n    v: 3\n  - - 4\n    - 5\nd: {}\ne: []\n";
  EXPECT_EQ(yaml_text(parse_config_text(text, "t.yaml")), text);
  EXPECT_EQ(json_text(parse_config_text("a: [1, true, 'x', null, 0x10]\n", "t.yaml")),
            "{\n  \"a\": [\n    1,\n    true,\n    \"x\",\n    null,\n    \"0x10\"\n  ]\n}\n");
}

TEST(ConfigTexts, NumbersStayNumbersInJson) {
  const auto written = [](const std::string& text) {
    const std::string json = json_text(parse_config_text("a: " + text + "\n", "t.yaml"));
    return json.substr(9, json.size() - 12);  // between { "a": and }
  };
  for (const char* number : {"0", "-0", "12", "-1.5", "0.001", "1e-5", "2.5E+10", "-0e3"}) {
    EXPECT_EQ(written(number), number);
  }
  for (const char* text : {"01", ".5", "1.", "1e", "1e+", "0x1f", "1.2.3", "+1", ".inf"}) {
    EXPECT_EQ(written(text), "\"" + std::string(text) + "\"");
  }
}

TEST(ConfigTexts, ASecondDocumentIsRefused) {
  EXPECT_EQ(file_refusal("distributed_type: 'NO'\n---\nmixed_precision: fp16\n"),
            "the file holds a second document after ---; one is taken | c.yaml:2 | make it a file "
            "of its own");
  EXPECT_EQ(file_refusal("---\ndistributed_type: 'NO'\n...\n"), "taken");
  EXPECT_NE(file_refusal(""), "taken");
}

class ConfigPaths : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"HF_HOME", "XDG_CACHE_HOME"}) unsetenv(name);
    setenv("HOME", "/home/somebody", 1);
  }
};

TEST_F(ConfigPaths, TheDefaultFollowsTheVariablesOfTheReference) {
  EXPECT_EQ(default_config_path(),
            "/home/somebody/.cache/huggingface/accelerate/default_config.yaml");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(default_config_path(), "/cache/huggingface/accelerate/default_config.yaml");
  setenv("HF_HOME", "~/hf", 1);
  EXPECT_EQ(default_config_path(), "/home/somebody/hf/accelerate/default_config.yaml");
  setenv("HF_HOME", "", 1);
  EXPECT_EQ(default_config_path(), "/cache/huggingface/accelerate/default_config.yaml");
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST(ReplaceFile, MakesFoldersKeepsTheModeAndFollowsLinks) {
  ScratchFolder folder;
  const auto path = folder.path() / "a" / "b" / "c.yaml";
  replace_file(path, "one");
  EXPECT_EQ(contents(path), "one");
  chmod(path.c_str(), 0600);
  const auto link = folder.path() / "link.yaml";
  std::filesystem::create_symlink(path, link);
  replace_file(link, "two");
  EXPECT_EQ(contents(path), "two");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(ReplaceFile, LeavesNothingBehindWhereItCannotWrite) {
  ScratchFolder folder;
  std::filesystem::create_directory(folder.path() / "c.yaml");
  EXPECT_THROW(replace_file(folder.path() / "c.yaml", "text"), FileWriteError);
  int entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().filename(), "c.yaml");
    ++entries;
  }
  EXPECT_EQ(entries, 1);
  EXPECT_THROW(replace_file(folder.write("file", "") + "/c.yaml", "text"), FileWriteError);
}

}  // namespace
}  // namespace accelerate::config
