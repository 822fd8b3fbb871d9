"""What the words on a page mean."""

TERMS = {
    "average precision": "How well a label's probabilities put the nodes that have it first; 1 is perfect, the share "
    "of nodes that have the label is chance.",
    "balanced": "The mean over classes of the share of their nodes that is right. Naming the largest class everywhere "
    "gains nothing.",
    "calibrated": "Probabilities are calibrated if of all predictions with a probability of 0.8 about 80 % are right.",
    "channels": "How many numbers a layer keeps per node.",
    "component": "A part of the graph in which every node can be reached from every other by edges.",
    "criterion": "The score by which settings are compared. No test label enters it.",
    "degree": "The number of edges of a node.",
    "edge weight": "A number that says how much an edge counts.",
    "embedding": "Numbers that a model computes for each node, so that similar nodes are close to each other.",
    "F1": "A mean of two shares: of the nodes predicted to have a label, how many have it; and of the nodes that have "
    "it, how many are found. 1 is perfect.",
    "fine-tuning": "Steps that adapt the layers to the labels, after they were found from the features alone.",
    "kept": "The share of the variance of a layer's features that its channels hold.",
    "kernel": "A function that says how similar two nodes are.",
    "kernel matrix": "The similarities of all pairs of nodes; of large graphs only some columns are computed, which "
    "represent the others up to an error.",
    "layer": "A step that mixes the features of neighbours and finds the main directions of the result.",
    "probability": "How likely a class is for a node, as the model says.",
    "R²": "The share of the variance of numbers that predictions explain: 1 is perfect, 0 is as good as their mean.",
    "readout": "The last step of a model, which reads the classes or numbers from the embedding.",
    "self-training": "Learning also from the predicted classes of nodes that the models are sure of.",
    "setting": "One choice of kernels, layers and strengths that a model is fitted with; a search tries many.",
    "settled": "The label of one node also tells something about others. What is open is how unsure the model is about "
    "all nodes; a label settles a share of it.",
    "spread": "The usual size of an error: the root mean square of the errors on withheld numbers.",
    "test node": "A node whose label was given only for checking; nothing has been learned from it.",
    "threshold": "The score from which on a node is predicted to have a label.",
    "withheld label": "A label that was given, but is kept back while the class of its node is predicted. Comparing "
    "both checks the predictions without further labels.",
    "withheld number": "A number that was given, but is kept back while it is predicted for its node. Comparing both "
    "checks the predictions without further numbers.",
}
