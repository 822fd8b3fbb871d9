// Keys, and clicks on names of nodes. Widgets have shadow roots, so the element that an event began at comes first in its path.
const send = (action, value) => {
  answer.content = [action, value, question.revision, Date.now() + Math.random()]
}
document.addEventListener("keydown", (event) => {
  const {tagName} = event.composedPath()[0]
  const types = ["INPUT", "TEXTAREA", "SELECT"].includes(tagName)
  if (types || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return
  const found = question.keys.find(([key]) => key === event.key)
  if (found !== undefined) send("label", found[1])
  else if (event.key === "s") send("skip", "")
  else if (event.key === "u") send("undo", "")
  else return
  event.preventDefault()
})
document.addEventListener("click", (event) => {
  const named = event.composedPath().find((element) => element.dataset !== undefined && element.dataset.node !== undefined)
  if (named !== undefined) send("ask", named.dataset.node)
})
