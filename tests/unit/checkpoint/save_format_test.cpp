// In which format save() writes a file: by its name, and never another than the name promises.
#include <accelerate/model_files.h>
#include <accelerate/safetensors.h>
#include <accelerate/torch_archive.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "unit/checkpoint/model_files_models.h"
#include "unit/files/safetensors_files.h"

namespace accelerate {
namespace {

using test::error_of;

struct SaveFormat : test::ScratchFolder {
  NamedTensors tensors() const {
    NamedTensors named;
    named.insert("weight", torch::arange(3));
    return named;
  }
  bool is_safetensors(const char* name) const {
    const SafetensorsFile file(folder_ / name);
    return file.tensor("weight").equal(torch::arange(3));
  }
  bool is_archive(const char* name) const {
    return load_torch_archive(folder_ / name)
        .as_dict()
        .at("weight")
        .as_tensor()
        .equal(torch::arange(3));
  }
};

TEST_F(SaveFormat, GoesByTheExtension) {
  accelerate::save(tensors(), folder_ / "a.safetensors");
  EXPECT_TRUE(is_safetensors("a.safetensors"));
  for (const char* name : {"a.bin", "a.pt", "a.pth", "a.pkl", "a", "a.model"}) {
    accelerate::save(tensors(), folder_ / name);
    EXPECT_TRUE(is_archive(name)) << name;
  }
}

TEST_F(SaveFormat, CanBeChosenForANameThatPromisesNothing) {
  accelerate::save(tensors(), folder_ / "a.model", {.safe_serialization = true});
  EXPECT_TRUE(is_safetensors("a.model"));
  accelerate::save(tensors(), folder_ / "b.model", {.safe_serialization = false});
  EXPECT_TRUE(is_archive("b.model"));
  accelerate::save(tensors(), folder_ / "c.safetensors", {.safe_serialization = true});
  EXPECT_TRUE(is_safetensors("c.safetensors"));
  accelerate::save(tensors(), folder_ / "d.bin", {.safe_serialization = false});
  EXPECT_TRUE(is_archive("d.bin"));
}

TEST_F(SaveFormat, IsRefusedWhereTheNamePromisesAnother) {
  const UsageError archive = error_of<UsageError>([&] {
    accelerate::save(tensors(), folder_ / "a.safetensors", {.safe_serialization = false});
  });
  EXPECT_EQ(archive.message(),
            "the file name is that of a safetensors file, but a torch archive was asked for");
  EXPECT_EQ(archive.where(), (folder_ / "a.safetensors").string());
  for (const char* name : {"a.bin", "a.pt", "a.pth", "a.pkl"}) {
    const UsageError error = error_of<UsageError>(
        [&] { accelerate::save(tensors(), folder_ / name, {.safe_serialization = true}); });
    EXPECT_EQ(error.message(),
              "the file name is that of a torch archive, but safetensors were asked for")
        << name;
  }
  const UsageError value =
      error_of<UsageError>([&] { accelerate::save(TorchValue(1.5), folder_ / "a.safetensors"); });
  EXPECT_EQ(value.message(),
            "safetensors files hold named tensors, and this value is something else");
  EXPECT_THAT(entries(), testing::IsEmpty());
}

}  // namespace
}  // namespace accelerate
