// Writes each kernel that Paddle chooses for a device, "name type", once, into the folder XPULAB_KERNELS, a file a process.
//
// A library that LD_PRELOAD puts before Paddle's: its SelectKernelOrThrowError stands in the place of Paddle's, which it calls.
// Views (kernels of layout STRIDED) are not written: an XPU has them, and asks no list. Used by tools/chapter_kernels.py.

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <string>

#include "paddle/phi/core/kernel_factory.h"

namespace phi {

static void Write(const std::string& line) {
  static auto* const written = new std::set<std::string>;  // never deleted: threads may still run when the process ends
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const char* folder = std::getenv("XPULAB_KERNELS"); folder != nullptr && written->insert(line).second) {
    std::ofstream(std::string(folder) + "/" + std::to_string(getpid()), std::ios::app) << line << "\n";
  }
}

KernelResult KernelFactory::SelectKernelOrThrowError(const std::string& name, const KernelKey& key, bool strided) const {
  using Select = KernelResult (*)(const KernelFactory*, const std::string&, const KernelKey&, bool);
  constexpr char kSelect[] =
      "_ZNK3phi13KernelFactory24SelectKernelOrThrowErrorERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS_"
      "9KernelKeyEb";
  static const auto select = reinterpret_cast<Select>(dlsym(dlopen("libphi_core.so", RTLD_LAZY | RTLD_NOLOAD), kSelect));
  const bool is_on_device = key.backend() != Backend::CPU;
  const std::string line = is_on_device ? name + " " + DataTypeToString(key.dtype()) : "";
  try {
    const KernelResult result = select(this, name, key, strided);
    if (is_on_device && !result.is_stride_kernel) Write(line);
    return result;
  } catch (...) {  // no kernel
    if (is_on_device) Write(line);
    throw;
  }
}

}  // namespace phi
