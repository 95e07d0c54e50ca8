// See wheel.h; also throw_to_python of error.h.
#include "wheel.h"

#include "paddle/phi/config.h"
// The wheel's config.h defines it, but the wheel does not contain the headers of oneDNN.
#undef PADDLE_WITH_DNNL

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "paddle/phi/backends/device_manager.h"
#include "paddle/phi/backends/stream.h"
#include "paddle/phi/common/memory_utils.h"
#include "paddle/phi/core/enforce.h"
#include "paddle/phi/core/generator.h"

#include "error.h"

namespace sim {
namespace {

using CopyOnStream = void (*)(phi::Place, void*, phi::Place, const void*, size_t, void*);

CopyOnStream copy_of_paddle = nullptr;

bool is_simulated(const phi::Place& place) {
  return place.GetType() == phi::AllocationType::CUSTOM && place.GetDeviceType() == "sim";
}

// Never destroyed: the destructor of a wrapper would close its stream.
const phi::stream::Stream* wrapper(void* stream) {
  static std::mutex& mutex = *new std::mutex;
  static auto& wrappers = *new std::map<void*, phi::stream::Stream*>;
  std::lock_guard<std::mutex> lock(mutex);
  auto& found = wrappers[stream];
  if (found == nullptr) {
    found = new phi::stream::Stream;
    found->set_stream(stream);
  }
  return found;
}

void copy(phi::Place to, void* target, phi::Place from, const void* source, size_t bytes, void* stream) {
  const bool to_host = to.GetType() == phi::AllocationType::CPU, from_host = from.GetType() == phi::AllocationType::CPU;
  if (!((is_simulated(to) && (is_simulated(from) || from_host)) || (is_simulated(from) && to_host))) {
    return copy_of_paddle(to, target, from, source, bytes, stream);
  }
  if (bytes == 0) return;
  const phi::stream::Stream* on = stream == nullptr ? nullptr : wrapper(stream);
  const phi::Place& card = from_host ? to : from;
  phi::DeviceManager::SetDevice(card);
  phi::Device* device = phi::DeviceManager::GetDeviceWithPlace(card);
  if (from_host) return device->MemoryCopyH2D(target, source, bytes, on);
  if (to_host) return device->MemoryCopyD2H(target, source, bytes, on);
  if (to == from) return device->MemoryCopyD2D(target, source, bytes, on);
  device->MemoryCopyP2P(to, target, source, bytes, on);
}

// Whether the address is in one of Paddle's libraries.
bool is_in_paddle(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "paddle/") != nullptr;
}

// A function of the Python that runs this process; nullptr where there is none.
template <typename Function>
Function* of_python(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

std::atomic<bool> asks = false;

// See let_auto_cast_ask. Needs Python's lock; does nothing while paddle.amp is not imported.
void replace_list_of_auto_cast() {
  using Object = void*;
  const auto modules = of_python<Object()>("PyImport_GetModuleDict");
  const auto item = of_python<Object(Object, const char*)>("PyDict_GetItemString");
  const auto has = of_python<int(Object, const char*)>("PyObject_HasAttrString");
  const auto get = of_python<Object(Object, const char*)>("PyObject_GetAttrString");
  const auto set = of_python<int(Object, const char*, Object)>("PyObject_SetAttrString");
  if (!modules || !item || !has || !get || !set) return;
  constexpr const char *kLooks = "_is_custom_device_bfloat16_supported", *kAsks = "is_bfloat16_supported";
  const Object amp = item(modules(), "paddle.amp"), auto_cast = item(modules(), "paddle.amp.auto_cast");
  if (amp == nullptr || auto_cast == nullptr || !has(amp, kAsks) || !has(auto_cast, kLooks)) return;
  asks = set(auto_cast, kLooks, get(amp, kAsks)) == 0;
}

}  // namespace

void cache_stream_wrappers() {
  // MemoryUtils has one member, a unique_ptr to the table of functions, and no accessor for it.
  static_assert(sizeof(phi::MemoryUtils) == sizeof(phi::MemoryInterface*));
  phi::MemoryInterface* table = nullptr;
  std::memcpy(&table, static_cast<const void*>(&phi::MemoryUtils::Instance()), sizeof(table));
  if (table == nullptr || table->copy_with_stream == copy) return;
  if (!is_in_paddle(reinterpret_cast<const void*>(table->copy_with_stream))) return;
  copy_of_paddle = table->copy_with_stream;
  table->copy_with_stream = copy;
}

void share_random_state(int cards) {
  for (int card = 0; card < cards; ++card) {
    const auto& state = phi::DefaultCustomDeviceGenerator(phi::CustomPlace("sim", card));
    const_cast<std::shared_ptr<phi::Generator>&>(state) = phi::DefaultCPUGenerator();
  }
}

void let_auto_cast_ask() {
  static std::atomic<bool> is_queued = false;
  if (asks || is_queued.exchange(true)) return;
  // Python calls it soon on its main thread, which then holds Python's lock; here it may be another one's.
  const auto add_pending_call = of_python<int(int (*)(void*), void*)>("Py_AddPendingCall");
  const auto call = [](void*) {
    is_queued = false;
    replace_list_of_auto_cast();
    return 0;
  };
  if (add_pending_call == nullptr || add_pending_call(call, nullptr) != 0) is_queued = false;
}

void throw_to_python(const std::string& message) {
  const common::ErrorSummary summary(common::errors::Unavailable("xpulab sim: %s", message));
  throw common::enforce::EnforceNotMet(summary, "xpulab/sim", 0);
}

}  // namespace sim
