// Loading the plug-in into a process that has imported Paddle already.
//
// Paddle loads plug-ins when it is imported, and then creates a device context and memory allocators for each device. This
// does the same later, with the wheel's own functions where it exports them. Paddle creates its allocators only once, and
// also those of tensors without elements: new ones are created and replace the old ones, which are never destroyed, since
// existing tensors return their memory to them.

#include "paddle/phi/config.h"
// The wheel's config.h defines it, but the wheel does not contain the headers of oneDNN.
#undef PADDLE_WITH_DNNL

#include <dlfcn.h>

#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "paddle/phi/backends/context_pool.h"
#include "paddle/phi/backends/device_manager.h"
#include "paddle/phi/common/memory_utils.h"
#include "paddle/phi/core/memory/allocation/allocator_facade.h"

namespace sim {
namespace {

using paddle::memory::allocation::Allocator;
using paddle::memory::allocation::AllocatorFacade;
using AllocatorMap = std::map<phi::Place, std::shared_ptr<Allocator>>;
using ContextMap = std::map<phi::Place, std::shared_future<std::unique_ptr<phi::DeviceContext>>>;

// A symbol of a loaded library. Throws std::runtime_error when the library or the symbol does not exist.
void* symbol(const std::string& library, const char* name) {
  void* handle = dlopen(library.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  if (handle == nullptr) throw std::runtime_error(library + " is not loaded");
  void* found = dlsym(handle, name);
  if (found == nullptr) throw std::runtime_error("this wheel does not export " + std::string(name));
  return found;
}

void attach(const std::string& libpaddle, const std::string& libphi, const std::string& folder) {
  // All symbols first: a wheel that lacks one is left unchanged.
  const auto load = reinterpret_cast<void (*)(const std::string&)>(
      symbol(libpaddle, "_ZN6paddle9framework16LoadCustomDeviceERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"));
  const auto construct =
      reinterpret_cast<void (*)(void*)>(symbol(libphi, "_ZN6paddle6memory10allocation15AllocatorFacadeC1Ev"));
  auto& for_empty = *reinterpret_cast<AllocatorMap*>(
      symbol(libphi, "_ZN6paddle6memory10allocation22AllocatorFacadePrivate21zero_size_allocators_E"));
  auto& for_system = *reinterpret_cast<AllocatorMap*>(
      symbol(libphi, "_ZN6paddle6memory10allocation22AllocatorFacadePrivate18system_allocators_E"));

  load(folder);
  if (!phi::DeviceManager::HasDeviceType("sim")) throw std::runtime_error("Paddle did not load the plug-in from " + folder);

  AllocatorFacade& current = AllocatorFacade::Instance();
  for_empty.swap(*new AllocatorMap);  // the constructor creates new ones when they are empty
  for_system.swap(*new AllocatorMap);
  void* made = ::operator new(sizeof(AllocatorFacade));
  construct(made);
  // Exchanges their only member, a pointer to the implementation.
  std::swap(*static_cast<void**>(made), *reinterpret_cast<void**>(&current));

  std::vector<phi::Place> places;
  for (const size_t card : phi::DeviceManager::GetSelectedDeviceList("sim")) places.push_back(phi::CustomPlace("sim", card));
  auto& contexts = const_cast<ContextMap&>(phi::DeviceContextPool::Instance().device_contexts());
  phi::memory_utils::EmplaceDeviceContexts(&contexts, places, /*disable_setting_default_stream_for_allocator=*/false,
                                           /*stream_priority=*/0, /*set_to_default_stream=*/false);
}

}  // namespace
}  // namespace sim

// Returns 0, or 1 with the reason in `why`.
extern "C" int xpulab_sim_attach(const char* libpaddle, const char* libphi, const char* folder, char* why, size_t size) {
  try {
    sim::attach(libpaddle, libphi, folder);
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(why, size, "%s", error.what());
    return 1;
  }
}
